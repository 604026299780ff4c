"""Reads a DeepSpeed configuration: dotted keys and their values, in the order of the file.

>>> dict(leaves({"bf16": {"enabled": True}, "optimizer": {"params": {"betas": [0.9, 0.95]}}}))
{'bf16.enabled': True, 'optimizer.params.betas': [0.9, 0.95]}
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.records.explained import Answer

__all__ = ["KNOWN_SECTIONS", "fixed_answer", "leaves", "read_config"]

_LARGEST_FILE = 2**20
_DEEPEST = 20
KNOWN_SECTIONS = frozenset({
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer", "scheduler",
    "fp16", "bf16", "zero_optimization", "gradient_clipping", "activation_checkpointing", "steps_per_print",
})  # fmt: skip
"""One of them at least is in every configuration."""


def read_config(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_user_text(path, _LARGEST_FILE))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not JSON: {error}", hint="the file that --deepspeed or deepspeed_config names"
        ) from None
    if not isinstance(data, dict) or not KNOWN_SECTIONS & data.keys():
        raise UserError(f"{path} is not a DeepSpeed configuration", hint="it would have zero_optimization or bf16")
    return data


def leaves(section: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Sections that stand in ``keys.toml`` as a whole are not taken apart."""
    for name, value in section.items():
        key = f"{prefix}{name}".strip()
        if isinstance(value, dict) and value and not is_whole(key) and depth < _DEEPEST:
            yield from leaves(value, f"{key}.", depth + 1)
        else:
            yield key, value


@cache
def _fixed() -> dict[str, tuple[Answer, str]]:
    tables = tomllib.loads(resources.files(__package__).joinpath("keys.toml").read_text(encoding="utf-8"))
    return {
        key: (answer, why)
        for name, answer in (("not_needed", Answer.NOT_NEEDED), ("not_supported", Answer.NOT_SUPPORTED))
        for key, why in tables[name].items()
    }


def fixed_answer(key: str) -> tuple[Answer, str] | None:
    """Of the key itself, or of a section around it."""
    while key:
        if key in _fixed():
            return _fixed()[key]
        key = key.rpartition(".")[0]
    return None


def is_whole(key: str) -> bool:
    return key in _fixed()


def known_keys() -> list[str]:
    return list(_fixed())
