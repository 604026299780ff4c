"""The built-in transformers by name, and what a family's name says about its layers.

Reads ``data/models.toml``. Called by ``find_model.py`` and the table reader.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.hardware.schema import did_you_mean
from vivace.plan.models.transformer import Positions, Transformer

__all__ = ["Traits", "built_in_names", "family_traits", "named_transformer", "unknown_model"]

FILE = Path(__file__).parents[1] / "data" / "models.toml"


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
