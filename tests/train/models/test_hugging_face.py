"""The GPT's weights under Hugging Face's names: nothing is lost, and the other side computes the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from vivace.checkpoint.safetensors import load_safetensors, save_safetensors
from vivace.errors import UserError
from vivace.records.transformer import TransformerSizes
from vivace.train.models.gpt import GPT
from vivace.train.models.hugging_face import config_of, from_hugging_face, to_hugging_face

SEQ_LEN = 8
LLAMA = TransformerSizes(layers=2, hidden=16, heads=4, kv_heads=2, ffn=40, vocab=32, gated=True)
GPT2 = TransformerSizes(layers=2, hidden=16, heads=4, vocab=32, biases=True, positions="learned")


def model_of(sizes: TransformerSizes) -> GPT:
    torch.manual_seed(1)
    model = GPT(sizes, SEQ_LEN)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.set_positions(torch.arange(SEQ_LEN))
    return model


@pytest.mark.parametrize("sizes", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_there_and_back_through_a_file(tmp_path: Path, sizes: TransformerSizes):
    state = model_of(sizes).state_dict()
    save_safetensors(to_hugging_face(state, sizes), tmp_path / "model.safetensors", {"format": "pt"})
    again = from_hugging_face(load_safetensors(tmp_path / "model.safetensors"), sizes)
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], value) for name, value in state.items())


def test_the_names_are_those_of_their_models():
    llama, gpt2 = (to_hugging_face(model_of(sizes).state_dict(), sizes) for sizes in (LLAMA, GPT2))
    assert llama["model.layers.1.self_attn.k_proj.weight"].shape == (8, 16)
    assert llama["model.layers.0.mlp.down_proj.weight"].shape == (16, 40)
    assert gpt2["transformer.h.0.attn.c_attn.weight"].shape == (16, 48)
    assert gpt2["transformer.h.1.mlp.c_fc.weight"].shape == (16, 64)
    assert len(llama) == 2 * 9 + 3
    assert len(gpt2) == 2 * 12 + 5


def test_a_tied_output_may_be_left_out():
    sizes = LLAMA.model_copy(update={"tied": True})
    theirs = to_hugging_face(model_of(LLAMA).state_dict(), sizes)
    del theirs["lm_head.weight"]
    assert torch.equal(from_hugging_face(theirs, sizes)["output.weight"], theirs["model.embed_tokens.weight"])


def test_what_does_not_fit_is_refused():
    theirs = to_hugging_face(model_of(LLAMA).state_dict(), LLAMA)
    with pytest.raises(UserError, match=r"model\.layers\.2\.input_layernorm\.weight is missing \(9 names differ\)"):
        from_hugging_face(theirs, LLAMA.model_copy(update={"layers": 3}))
    with pytest.raises(UserError, match="neither a Llama"):
        config_of(TransformerSizes(), SEQ_LEN)


@pytest.mark.parametrize(("sizes", "name"), [(LLAMA, "Llama"), (GPT2, "GPT2")], ids=["llama", "gpt2"])
def test_their_model_computes_the_same(tmp_path: Path, sizes: TransformerSizes, name: str):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    ours = model_of(sizes)
    save_safetensors(to_hugging_face(ours.state_dict(), sizes), tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config_of(sizes, SEQ_LEN)))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(theirs).__name__.startswith(name)
    tokens = torch.randint(32, (3, SEQ_LEN))
    with torch.no_grad():
        assert torch.allclose(theirs(tokens).logits, ours(tokens), rtol=1e-4, atol=1e-5)
