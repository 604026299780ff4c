"""Makes two runs comparable: the same seed for both, and another one for each pair of runs.

A script that never seeds itself is seeded; one that does keeps its seed plus the pair's offset. Generators that the
script makes itself (``torch.Generator``) are left alone: they often define the data.
"""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

import torch

from vivace.measure.inside.patches import in_place_of

__all__ = ["install"]

_FIRST_SEED = 1  # what a script without a seed gets, plus the offset


def install(offset: int) -> None:
    _seed_everything(_FIRST_SEED + offset)
    if offset == 0:
        return
    manual_seed = _shifted(torch.manual_seed, offset)
    torch.manual_seed = torch.random.manual_seed = manual_seed
    random.seed = _shifted(random.seed, offset)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed = _shifted(numpy.random.seed, offset)


def _seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def _shifted(original: Any, offset: int) -> Any:
    def seed(value: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            value += offset
        return original(value, *args, **kwargs) if value is not None or args or kwargs else original()

    with contextlib.suppress(AttributeError, TypeError):
        return in_place_of(original, seed)
    return seed
