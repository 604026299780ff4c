"""Masked language modelling: some tokens of a sequence are hidden, and the model finds them again (BERT).

Devlin et al. 2019, section 3.1: of the chosen tokens 80 % become the mask token, 10 % another token, 10 % stay. Every
sequence has equally many chosen tokens, so means over ranks and passes are exact. What is chosen follows from the seed,
the epoch and the sequence; in validation it never changes.
"""

from __future__ import annotations

import numpy as np
import torch

from vivace.recipes.recipe import Recipe
from vivace.recipes.sources import Fetched, Key, Source

__all__ = ["IGNORED", "MaskedTokens", "masked"]

IGNORED = -100
"""The target of a token that was not chosen: torch's cross-entropy leaves it out."""
_HIDDEN, _REPLACED = 0.8, 0.1


def masked(recipe: Recipe, source: Source | None) -> Source | None:
    """The same source, with hidden tokens if the recipe asks for them."""
    if source is None or recipe.objective.name != "masked":
        return source
    return MaskedTokens(source, recipe.model.sizes.vocab - 1, recipe.objective.mask_share, recipe.seed)


class MaskedTokens:
    """``mask`` is the last token of the vocabulary; the data have only those before it."""

    classes: int | None = None

    def __init__(self, source: Source, mask: int, share: float, seed: int) -> None:
        self._source, self._mask, self._share, self._seed = source, mask, share, seed

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, keys: list[Key]) -> Fetched:
        fetched = self._source[keys]
        original = fetched.inputs.numpy()
        inputs, targets = original.copy(), np.full_like(original, IGNORED)
        chosen = max(1, round(self._share * original.shape[1]))
        for row, key in enumerate(keys):
            draws = np.random.default_rng([self._seed, key.epoch + 1, key.number])  # epochs begin at -1
            places = draws.permutation(original.shape[1])[:chosen]
            targets[row, places] = original[row, places]
            fate = draws.random(chosen)
            others = np.where(
                fate < _HIDDEN + _REPLACED, draws.integers(self._mask, size=chosen), original[row, places]
            )
            inputs[row, places] = np.where(fate < _HIDDEN, self._mask, others)
        return fetched._replace(inputs=torch.from_numpy(inputs), targets=torch.from_numpy(targets))
