"""``config.json`` files of well-known models: counted to the last parameter, or refused.

The configs of ``data/configs.json`` were written by hand from the published ones. The counts are those of
``transformers`` 5.22 (the model built on the meta device); they round to the model cards' figures.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.plan.answering.find_model import find_model
from vivace.plan.answering.make_job import transformer_job
from vivace.plan.answering.request import Request
from vivace.plan.machines.cluster import machine_for
from vivace.plan.models.architectures import ARCHITECTURES
from vivace.plan.models.config_file import from_config
from vivace.plan.models.flops import model_flops_per_token
from vivace.plan.models.transformer import Transformer
from vivace.plan.time.step import step_time

KNOWN = json.loads((Path(__file__).parents[1] / "data" / "configs.json").read_text())
CARDS = {  # in billions, as the model cards print them
    "llama-3-8b": 8.03,
    "mistral-7b-v0.3": 7.25,
    "mistral-nemo": 12.2,
    "qwen2.5-7b": 7.62,
    "qwen3-8b": 8.19,
    "gemma-7b": 8.54,
    "gemma-2-9b": 9.24,
    "gpt2": 0.124,
    "phi-3-mini": 3.82,
    "phi-2": 2.78,
    "gpt-j-6b": 6.05,
    "falcon-40b": 41.3,
    "starcoder": 15.5,
    "command-r": 35.0,
    "bert-base": 0.110,
}


def written(tmp_path: Path, config: dict) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


def changed(name: str, **keys: object) -> dict:
    return {**KNOWN[name]["config"], **keys}


@pytest.mark.parametrize("name", KNOWN)
def test_every_parameter_is_counted(tmp_path, name):
    model = from_config(written(tmp_path, KNOWN[name]["config"]))
    assert model.parameters == KNOWN[name]["parameters"]


@pytest.mark.parametrize(("name", "billions"), CARDS.items())
def test_counts_are_those_of_the_model_cards(name, billions):
    assert KNOWN[name]["parameters"] / 1e9 == pytest.approx(billions, rel=0.005)


def test_every_known_architecture_has_a_published_example():
    shown = {entry["config"]["model_type"] for entry in KNOWN.values()}
    assert set(ARCHITECTURES) - shown == {"camembert"}  # RoBERTa under another name


def test_switches_of_a_config_are_read(tmp_path):
    plain = from_config(written(tmp_path, changed("llama-3-8b"))).parameters
    biased = from_config(written(tmp_path, changed("llama-3-8b", attention_bias=True, mlp_bias=True))).parameters
    assert biased - plain == 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
    tied = from_config(written(tmp_path, changed("llama-3-8b", tie_word_embeddings=True))).parameters
    assert plain - tied == 128256 * 4096


def test_a_shorter_sequence_keeps_the_learned_positions(tmp_path):
    path = written(tmp_path, changed("gpt2"))
    assert from_config(path, seq_len=128).parameters == KNOWN["gpt2"]["parameters"]
    assert find_model(Request("gpt2-124m", gpu="h100", seq_len=128)).parameters == KNOWN["gpt2"]["parameters"]
    with pytest.raises(UserError, match="1024 positions") as caught:
        from_config(path, seq_len=2048)
    assert "--seq-len 1024" in caught.value.hint


def test_roberta_trains_on_two_tokens_less_than_it_has_positions(tmp_path):
    assert from_config(written(tmp_path, changed("roberta-base"))).seq_len == 512


MOE = {
    "mixtral": changed("mistral-7b-v0.1", model_type="mixtral", num_local_experts=8, num_experts_per_tok=2),
    "deepseek_v3": changed(
        "llama-3-8b", model_type="deepseek_v3", n_routed_experts=256, moe_intermediate_size=2048, kv_lora_rank=512
    ),
    "qwen2_moe": changed("qwen2.5-7b", model_type="qwen2_moe", num_experts=60, moe_intermediate_size=1408),
    "qwen3_moe": changed("qwen3-8b", model_type="qwen3_moe", num_experts=128),
    "jamba": changed("llama-3-8b", model_type="jamba", num_experts=16, attn_layer_period=8, mamba_d_state=16),
    "dbrx": {
        "model_type": "dbrx",
        "d_model": 6144,
        "n_layers": 40,
        "n_heads": 48,
        "vocab_size": 100352,
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    },
    "switch": {"model_type": "switch_transformers", "d_model": 768, "num_layers": 12, "num_experts": 8},
    "a name nobody knows": changed("llama-3-8b", num_moe_experts=4),
}


@pytest.mark.parametrize("name", MOE)
def test_a_mixture_of_experts_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="mixture of experts") as caught:
        from_config(written(tmp_path, MOE[name]))
    assert "dense" in caught.value.message
    assert "--layers" in caught.value.hint


def test_one_expert_is_a_dense_model(tmp_path):
    path = written(tmp_path, changed("llama-3-8b", num_local_experts=1, num_experts=0, moe_intermediate_size=None))
    assert from_config(path).parameters == KNOWN["llama-3-8b"]["parameters"]


OTHERS = {
    "t5": ({"model_type": "t5", "d_model": 512, "num_layers": 6, "is_encoder_decoder": True}, "encoder-decoder"),
    "t5 without its flag": ({"model_type": "t5", "d_model": 512, "num_decoder_layers": 6}, "encoder-decoder"),
    "bart": ({"model_type": "bart", "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12}, "encoder-decoder"),
    "mamba": ({"model_type": "mamba", "hidden_size": 768, "state_size": 16, "vocab_size": 50280}, "state-space"),
    "mamba's own": ({"d_model": 2560, "n_layer": 64, "ssm_cfg": {"layer": "Mamba2"}}, "state-space"),
    "qwen3-next like": (changed("qwen3-8b", layer_types=["linear_attention", "full_attention"]), "recurrent layers"),
    "recurrent gemma": (changed("gemma-2b", block_types=["recurrent", "attention"], lru_width=2560), "recurrent"),
    "minicpm3": (changed("llama-3-8b", model_type="minicpm3", kv_lora_rank=256), "latent attention"),
    "vit": ({"model_type": "vit", "hidden_size": 768, "image_size": 224, "patch_size": 16}, "image model"),
    "timm": ({"architecture": "resnet50", "num_classes": 1000, "num_features": 2048}, "image model"),
    "llava": ({"model_type": "llava", "text_config": {}, "vision_config": {}}, "several parts"),
    "lora": ({"peft_type": "LORA", "r": 16}, "adapter"),
    "classifier": (changed("bert-base", architectures=["BertForSequenceClassification"]), "SequenceClassification"),
    "opt-350m": (changed("opt-125m", word_embed_proj_dim=512), "projects an embedding"),
    "albert": (changed("bert-base", model_type="albert"), "model_type 'albert'"),
    "relative bert": (changed("bert-base", position_embedding_type="relative_key"), "position_embedding_type"),
    "biased mpt": (changed("mpt-7b", no_bias=False), "no_bias = False"),
    "normed mpt": (changed("mpt-7b", attn_config={"qk_ln": True}), "qk_ln = True"),
    "no type": ({"hidden_size": 64, "num_hidden_layers": 2}, "no model_type"),
    "odd heads": (changed("gpt2", n_head=7), "7 heads do not divide"),
    "odd groups": (changed("llama-3-8b", num_key_value_heads=5), "5 key-value heads"),
    "words": (changed("llama-3-8b", hidden_size="big"), "hidden_size = 'big'"),
    "negative": (changed("llama-3-8b", num_hidden_layers=-2), "num_hidden_layers = -2"),
    "no vocabulary": (changed("llama-3-8b", vocab_size=None), "no vocab_size"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_would_be_misread_is_refused_with_what_it_is(tmp_path, name):
    config, words = OTHERS[name]
    with pytest.raises(UserError) as caught:
        from_config(written(tmp_path, config))
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "window", "layers"),
    [
        ("mistral-7b-v0.1", 4096, 32),
        ("mistral-7b-v0.3", 0, 0),
        ("qwen2.5-7b", 0, 0),  # a window is given, and use_sliding_window is false
        ("gemma-2-9b", 4096, 21),
        ("gemma-3-1b", 512, 22),
        ("phi-3-mini", 2047, 32),
        ("gpt-neo-1.3b", 256, 12),
    ],
)
def test_sliding_windows(tmp_path, name, window, layers):
    model = from_config(written(tmp_path, KNOWN[name]["config"]))
    assert (model.window, model.windowed_layers) == (window, layers)


def test_a_window_is_worth_what_it_leaves_out(tmp_path):
    """Mistral at 32,768 tokens: a window of an eighth leaves 15/64 of the scores."""
    path = written(tmp_path, changed("mistral-7b-v0.1"))
    model = from_config(path)
    assert model.attention_share(32_768) == pytest.approx(15 / 64)
    assert model.attention_share(4096) == 1.0
    whole = from_config(written(tmp_path, changed("mistral-7b-v0.1", sliding_window=None)))
    attention = 12 * 32 * 4096 * 32_768
    assert model_flops_per_token(whole, 32_768) - model_flops_per_token(model, 32_768) == pytest.approx(
        attention * 49 / 64
    )


def test_a_windowed_step_is_shorter_and_the_plan_says_why(tmp_path):
    site = machine_for("dgx-h100")
    jobs = []
    for window in (4096, None):
        path = written(tmp_path, changed("mistral-7b-v0.1", sliding_window=window))
        request = Request(str(path), cluster="dgx-h100", gpus=8, global_batch=8)
        jobs.append(transformer_job(request, find_model(request), site))
    assert step_time(jobs[0][0]).total < step_time(jobs[1][0]).total
    assert any("sliding window of 4,096 tokens in 32 of 32 layers" in note for note in jobs[0][1])
    assert any("sequences of 32,768 tokens" in note for note in jobs[0][1])


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(0, 6))
def test_a_window_never_adds_work(window, seq_len, layers):
    model = Transformer("m", 6, 64, 4, 4, 256, 100, seq_len, window=window, windowed_layers=layers)
    assert 0 < model.attention_share(seq_len) <= 1
    assert model.attention_share(seq_len) >= 1 - layers / 6
