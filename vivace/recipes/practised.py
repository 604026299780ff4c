"""What a tune kept, as settings of a recipe: ``practices = "@vivace-runs/train-001"``.

The loop does these things in the open. A practice that it has no setting for is refused, with the way to have it: the
same proof from outside, ``vivace run --with``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vivace.errors import UserError
from vivace.recipes.reading import validated
from vivace.recipes.recipe import Recipe
from vivace.tune.running import read_words

__all__ = ["with_practices"]

_SETTINGS: dict[str, tuple[str, str, Any]] = {
    "bf16": ("speed", "precision", "bf16"),
    "tf32": ("speed", "precision", "tf32"),
    "channels_last": ("speed", "channels_last", True),
    "compile": ("speed", "compile", True),
    "fused_optimizer": ("speed", "fused_optimizer", True),
    "cudnn_benchmark": ("speed", "cudnn_benchmark", True),
    "pin_memory": ("speed", "pin_memory", True),
    "gpu_prefetch": ("speed", "gpu_prefetch", True),
    "workers": ("data", "workers", int),
    "prefetch": ("data", "prefetch", int),
}
_ALWAYS = (
    "foreach_optimizer",
    "persistent_workers",
    "non_blocking",
    "no_grad_validation",
    "no_syncs",
    "debug_off",
    "preallocate",
)
"""What the loop does anyway."""


def with_practices(recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with the settings of its ``practices``, and their words."""
    if recipe.practices is None:
        return recipe, ()
    words = read_words(recipe.practices)
    changes: dict[str, dict[str, Any]] = {"speed": {}, "data": {}}
    for word in _tf32_first(words):
        name, _, argument = word.partition("=")
        if name in _ALWAYS:
            continue
        if name not in _SETTINGS:
            raise UserError(
                f"practices: the loop of a recipe has no setting for {name}",
                hint=f"leave practices out, and: vivace run --with {recipe.practices} -- vivace train {recipe.name}",
            )
        part, key, value = _SETTINGS[name]
        if value is int:
            value = _number(word, argument)
        changes[part][key] = argument if name == "compile" and argument else value
    fields = recipe.model_dump(mode="json")
    for part, update in changes.items():
        fields[part].update(update)
    return validated({**fields, "practices": None}, recipe.practices), words


def _tf32_first(words: Sequence[str]) -> list[str]:
    """bf16 uses TF32 for what stays in fp32, so both in a proof are bf16."""
    return sorted(words, key=lambda word: word.partition("=")[0] != "tf32")


def _number(word: str, argument: str) -> int:
    if not argument.isdigit():
        raise UserError(f"practices: {word} has no number", hint=f"{word.partition('=')[0]}=4")
    return int(argument)
