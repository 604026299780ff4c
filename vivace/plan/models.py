"""Models by name, by sizes or from a Hugging Face ``config.json``; and what a family's name says about its
layers.

Reads ``data/models.toml`` and the config file that it is given. Called by the CLI and the table reader.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.hardware.schema import did_you_mean
from vivace.plan.transformer import Positions, Transformer

__all__ = ["Traits", "built_in_names", "family_traits", "from_config", "named_transformer"]

FILE = Path(__file__).parent / "data" / "models.toml"


@dataclass(frozen=True)
class Traits:
    """What all models of a family share."""

    gated: bool
    biases: bool
    tied: bool
    positions: Positions
    dropout: bool
    vocab: int


GPT = Traits(False, True, True, "learned", True, 50_257)
LLAMA = Traits(True, False, False, "rotary", False, 32_000)
_FAMILIES: tuple[tuple[str, Traits], ...] = (
    (r"llama-?\s*3|llama3", replace(LLAMA, vocab=128_256)),
    (r"qwen", replace(LLAMA, vocab=151_936)),
    (r"gemma", replace(LLAMA, vocab=256_000, tied=True)),
    (r"llama|mistral|\byi\b|olmo|internlm|baichuan|deepseek|smollm|vicuna|codellama|aquila|chatglm", LLAMA),
    (r"mpt", Traits(False, False, True, "learned", False, 50_368)),
    (r"bloom", Traits(False, True, True, "alibi", False, 250_880)),
    (r"falcon", Traits(False, False, True, "rotary", False, 65_024)),
    (r"pythia|neox|nemotron", Traits(False, True, False, "rotary", False, 50_304)),
)


def family_traits(name: str) -> Traits:
    """Llama-like families are gated, bias-free, rotary and untied; everything else is taken for a GPT."""
    lowered = name.lower()
    return next((traits for pattern, traits in _FAMILIES if re.search(pattern, lowered)), GPT)


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))["transformer"]


def built_in_names() -> list[str]:
    return sorted(_table())


def named_transformer(name: str) -> Transformer | None:
    """A built-in transformer, or None."""
    entry = _table().get(name.strip().lower())
    if entry is None:
        return None
    values = {key: value for key, value in entry.items() if key != "source"}
    return Transformer(name=name.strip().lower(), **values)


def unknown_model(name: str, also: list[str]) -> UserError:
    near = did_you_mean(name.lower(), built_in_names() + also)
    hint = near or f"built in: {', '.join(built_in_names()[:12])}, …; or a config.json, or file.py:function"
    return UserError(f"no model is called {name!r}", hint)


def from_config(path: Path | str, seq_len: int | None = None) -> Transformer:
    """A Hugging Face ``config.json`` (the keys of GPT-2, GPT-NeoX, Llama, BLOOM, Falcon, BERT and their
    kin).
    """
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a config.json: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} is not a config.json: it holds no object")
    return _transformer_from(config, str(path), seq_len)


def _transformer_from(config: dict[str, Any], source: str, seq_len: int | None) -> Transformer:
    def first(*keys: str) -> Any:
        return next((config[key] for key in keys if config.get(key) is not None), None)

    def needed(*keys: str) -> int:
        value = first(*keys)
        if value is None:
            raise UserError(f"{source} has no {keys[0]}", hint=f"one of {', '.join(keys)} is needed")
        return int(value)

    kind = str(config.get("model_type", ""))
    traits = family_traits(kind)
    hidden, layers = (
        needed("hidden_size", "n_embd", "d_model"),
        needed("num_hidden_layers", "n_layer", "n_layers"),
    )
    heads = needed("num_attention_heads", "n_head", "n_heads")
    gated = traits.gated or str(first("hidden_act", "activation_function") or "") in (
        "silu",
        "swiglu",
        "geglu",
    )
    positions = first("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len")
    return Transformer(
        name=str(first("_name_or_path", "model_type") or source),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=int(first("num_key_value_heads", "num_kv_heads", "n_head_kv") or heads),
        ffn=int(first("intermediate_size", "n_inner", "ffn_dim", "d_ff") or 4 * hidden),
        vocab=needed("vocab_size"),
        seq_len=seq_len or int(positions or 2048),
        gated=gated,
        biases=not gated,
        tied=bool(config.get("tie_word_embeddings", traits.tied)),
        positions="rotary" if config.get("rope_theta") else traits.positions,
        dropout=any(
            float(first(key) or 0) > 0 for key in ("attention_dropout", "attn_pdrop", "resid_pdrop", "hidden_dropout")
        ),
        head_dim_given=int(config.get("head_dim") or 0),
        causal="bert" not in kind,
    )
