"""The GPT's weights under the names that Hugging Face models use, in both directions.

Gated models without biases are Llamas; models with biases and learned positions are GPT-2s (whose ``c_attn`` holds
query, key and value side by side, and whose matrices are transposed). ``config_of`` says what else the other side must
know: GPT-2 as published has another GELU, and must be told to use the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vivace.errors import UserError
from vivace.records.transformer import TransformerSizes

__all__ = ["config_of", "from_hugging_face", "to_hugging_face"]

_LLAMA = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.query.weight": "self_attn.q_proj.weight",
    "attention.key.weight": "self_attn.k_proj.weight",
    "attention.value.weight": "self_attn.v_proj.weight",
    "attention.out.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn.gate.weight": "mlp.gate_proj.weight",
    "ffn.up.weight": "mlp.up_proj.weight",
    "ffn.down.weight": "mlp.down_proj.weight",
}
_LLAMA_ENDS = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_GPT2 = {
    "attention_norm": "ln_1",
    "attention.out": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
}
_GPT2_ENDS = {
    "embedding.weight": "transformer.wte.weight", "positions.weight": "transformer.wpe.weight",
    "norm.weight": "transformer.ln_f.weight", "norm.bias": "transformer.ln_f.bias", "output.weight": "lm_head.weight",
}  # fmt: skip
_PARTS = ("query", "key", "value")
_TRANSPOSED = ("attn.c_proj", "mlp.c_fc", "mlp.c_proj")


def to_hugging_face(state: Mapping[str, Tensor], sizes: TransformerSizes) -> dict[str, Tensor]:
    """A whole state dict of ``GPT`` as ``LlamaForCausalLM`` or ``GPT2LMHeadModel`` names it."""
    return {name: build(state) for name, build in _recipe(sizes).items()}


def from_hugging_face(state: Mapping[str, Tensor], sizes: TransformerSizes) -> dict[str, Tensor]:
    """The other way round. Raises ``UserError`` with the first names that are missing or too many."""
    expected = _recipe(sizes).keys()
    state = dict(state)
    embedding = "model.embed_tokens.weight" if sizes.gated else "transformer.wte.weight"
    if sizes.tied and "lm_head.weight" not in state and embedding in state:  # a tied output is often left out
        state["lm_head.weight"] = state[embedding]
    wrong = sorted(expected ^ state.keys())
    if wrong:
        what = "is missing" if wrong[0] in expected else "is not known"
        raise UserError(f"{wrong[0]} {what} ({len(wrong)} names differ)", hint="do the sizes fit the file?")
    return _llama_back(state, sizes) if sizes.gated else _gpt2_back(state, sizes)


def config_of(sizes: TransformerSizes, seq_len: int) -> dict[str, Any]:
    """For ``config.json``."""
    _check(sizes)
    if sizes.gated:
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": sizes.vocab,
            "hidden_size": sizes.hidden, "intermediate_size": sizes.ffn or 4 * sizes.hidden,
            "num_hidden_layers": sizes.layers, "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.kv_heads or sizes.heads, "max_position_embeddings": seq_len,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": sizes.tied, "hidden_act": "silu",
        }  # fmt: skip
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": sizes.vocab, "n_embd": sizes.hidden,
        "n_inner": sizes.ffn or 4 * sizes.hidden, "n_layer": sizes.layers, "n_head": sizes.heads,
        "n_positions": seq_len, "activation_function": "gelu", "tie_word_embeddings": sizes.tied,
        "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip


def _check(sizes: TransformerSizes) -> None:
    llama = sizes.gated and not sizes.biases and sizes.positions == "rotary"
    gpt2 = not sizes.gated and sizes.biases and sizes.positions == "learned" and sizes.kv_heads in (0, sizes.heads)
    plain = sizes.causal and not sizes.window and sizes.head_dim in (0, sizes.hidden // sizes.heads)
    if not plain or not (llama or gpt2):
        raise UserError(
            "this GPT is neither a Llama (gated, rotary, no biases) nor a GPT-2 (biases, learned positions)",
            hint="--set sizes.gated=true sizes.biases=false sizes.positions=rotary",
        )


Recipe = dict[str, Callable[[Mapping[str, Tensor]], Tensor]]


def _taken(name: str) -> Callable[[Mapping[str, Tensor]], Tensor]:
    return lambda state: state[name]


def _recipe(sizes: TransformerSizes) -> Recipe:
    """Their names, and how each is made from ours."""
    _check(sizes)
    made: Recipe = {}
    for ours, theirs in (_LLAMA_ENDS if sizes.gated else _GPT2_ENDS).items():
        made[theirs] = _taken(ours)
    for layer in range(sizes.layers):
        made.update(_llama_layer(layer) if sizes.gated else _gpt2_layer(layer))
    return made


def _llama_layer(layer: int) -> Recipe:
    return {f"model.layers.{layer}.{theirs}": _taken(f"blocks.{layer}.{ours}") for ours, theirs in _LLAMA.items()}


def _gpt2_layer(layer: int) -> Recipe:
    made: Recipe = {}
    for kind in ("weight", "bias"):
        for ours, theirs in _GPT2.items():
            turned = kind == "weight" and theirs in _TRANSPOSED

            def one(state: Mapping[str, Tensor], ours: str = ours, kind: str = kind, turned: bool = turned) -> Tensor:
                tensor = state[f"blocks.{layer}.{ours}.{kind}"]
                return tensor.t().contiguous() if turned else tensor

            made[f"transformer.h.{layer}.{theirs}.{kind}"] = one

        def fused(state: Mapping[str, Tensor], kind: str = kind) -> Tensor:
            whole = torch.cat([state[f"blocks.{layer}.attention.{part}.{kind}"] for part in _PARTS])
            return whole.t().contiguous() if kind == "weight" else whole

        made[f"transformer.h.{layer}.attn.c_attn.{kind}"] = fused
    return made


def _llama_back(state: Mapping[str, Tensor], sizes: TransformerSizes) -> dict[str, Tensor]:
    found = {ours: state[theirs] for ours, theirs in _LLAMA_ENDS.items()}
    for layer in range(sizes.layers):
        for ours, theirs in _LLAMA.items():
            found[f"blocks.{layer}.{ours}"] = state[f"model.layers.{layer}.{theirs}"]
    return found


def _gpt2_back(state: Mapping[str, Tensor], sizes: TransformerSizes) -> dict[str, Tensor]:
    found = {ours: state[theirs] for ours, theirs in _GPT2_ENDS.items()}
    for layer in range(sizes.layers):
        for kind in ("weight", "bias"):
            for ours, theirs in _GPT2.items():
                tensor = state[f"transformer.h.{layer}.{theirs}.{kind}"]
                turned = kind == "weight" and theirs in _TRANSPOSED
                found[f"blocks.{layer}.{ours}.{kind}"] = tensor.t().contiguous() if turned else tensor
            fused = state[f"transformer.h.{layer}.attn.c_attn.{kind}"]
            for part, tensor in zip(_PARTS, fused.chunk(3, dim=-1), strict=True):
                turned_part = tensor.t() if kind == "weight" else tensor
                found[f"blocks.{layer}.attention.{part}.{kind}"] = turned_part.contiguous()
    return found
