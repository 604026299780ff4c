"""Parameter counts against published ones, config files, and models traced on the meta device."""

from __future__ import annotations

import json

import pytest

from vivace.errors import UserError
from vivace.plan.answering.find_model import find_model
from vivace.plan.answering.request import Request
from vivace.plan.images.image_job import traced
from vivace.plan.models.built_in import built_in_names, family_traits, named_transformer
from vivace.plan.models.config_file import from_config


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-124m", 124_439_808),
        ("gpt2-1.5b", 1_557_611_200),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3-405b", 405_853_388_800),
        ("llama-3.2-1b", 1_235_814_400),
        ("mistral-7b", 7_241_732_096),
        (
            "bloom-176b",
            176_247_271_424 - 2 * 14_336,
        ),  # BLOOM norms its embedding; the planner leaves that out
    ],
)
def test_parameter_counts_of_model_cards(name, parameters):
    assert named_transformer(name).parameters == parameters


def test_every_built_in_model_is_legal():
    for name in built_in_names():
        model = named_transformer(name)
        assert model.hidden % model.heads == 0
        assert model.heads % model.kv_heads == 0


def test_a_hugging_face_config(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert from_config(path).parameters == 8_030_261_248
    assert find_model(Request(str(tmp_path), gpu="h100")).parameters == 8_030_261_248
    gpt2 = {
        "model_type": "gpt2",
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "vocab_size": 50257,
        "n_positions": 1024,
        "attn_pdrop": 0.1,
        "activation_function": "gelu_new",
    }
    path.write_text(json.dumps(gpt2))
    found = from_config(path)
    assert (found.parameters, found.dropout, found.gated) == (124_439_808, True, False)


def test_a_config_without_sizes_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="hidden_size"):
        from_config(path)


def test_families_by_name():
    assert family_traits("Llama 3 8B").gated
    assert family_traits("Llama 3 8B").vocab == 128_256
    assert not family_traits("GPT 175B").gated
    assert not family_traits("MPT 7b").biases


@pytest.mark.parametrize(
    ("name", "parameters", "forward_gflops"),
    [("resnet18", 11_689_512, 3.64), ("resnet50", 25_557_032, 8.18), ("resnet152", 60_192_808, 23.0)],
)
def test_residual_networks(name, parameters, forward_gflops):
    """Parameters of torchvision's models; multiply-adds of the papers, twice."""
    model = traced(name, 2, 224, 2)
    assert model.parameters == parameters
    forward = sum(op.flops for op in model.operations if not op.backward) / model.batch / 1e9
    assert forward == pytest.approx(forward_gflops, rel=0.02)
    assert 2.8 < model.flops / model.batch / 1e9 / forward < 3.0  # no gradient for the image


def test_other_image_models_have_the_published_sizes():
    assert traced("efficientnet-b0", 2, 224, 2).parameters == pytest.approx(5.29e6, rel=0.01)
    assert traced("resnext101_32x4d", 2, 224, 2).parameters == pytest.approx(44.18e6, rel=0.01)
    assert traced("vit_base_patch16_224", 2, 224, 2).parameters == pytest.approx(86.6e6, rel=0.01)


def test_saved_activations_grow_with_the_batch():
    one, two = (traced("resnet18", batch, 64, 2).saved_bytes for batch in (2, 4))
    assert two == pytest.approx(2 * one, rel=0.05)  # the running statistics do not grow


def test_a_model_from_a_file(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 32 * 32, 10))\n"
    )
    model = traced(f"{path}:make", 4, 32, 4)
    assert model.parameters == 3 * 8 * 9 + 8 + 8 * 32 * 32 * 10 + 10
    first = next(op for op in model.operations if op.kind == "conv")
    assert (first.m, first.n, first.k) == (4 * 32 * 32, 8, 27)
    with pytest.raises(UserError, match="no function"):
        traced(f"{path}:absent", 4, 32, 4)
