"""One pair of long runs: do the losses of the tuned job end higher? For what shows late, such as lost small updates.

The two runs have one seed and so the same batches, which takes most of the scatter of the losses out of their
difference. What is left is the chance of two runs that have parted: it is taken from how the difference itself goes
up and down, in blocks that are long against its memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vivace.records.proof import HarmOutcome, HarmTest, HarmTestKind

__all__ = ["compare_long_runs"]

_KIND = HarmTestKind.LONG_LOOK
_BLOCKS = 8
_STANDARD_ERRORS = 3.5  # 8 blocks: one false alarm in a hundred by Student's t, one-sided
_LEAST = 0.005  # of the loss: less is nobody's harm
_FEWEST_STEPS = 4 * _BLOCKS


def compare_long_runs(before: Sequence[float], after: Sequence[float]) -> HarmTest:
    steps = min(len(before), len(after))
    if steps < _FEWEST_STEPS:
        return HarmTest(kind=_KIND, outcome=HarmOutcome.NOT_RUN, says=f"only {steps} steps have a loss")
    half = steps // 2
    b, a = np.asarray(before[half:steps], dtype=float), np.asarray(after[half:steps], dtype=float)
    if not np.isfinite(a).all():
        return HarmTest(
            kind=_KIND, outcome=HarmOutcome.FAILED, steps=steps, pairs=1, says="a loss became NaN or infinite"
        )
    size = float(np.mean(np.abs(b))) or 1.0
    means = np.array([block.mean() for block in np.array_split(a - b, _BLOCKS)]) / size
    mean, error = float(means.mean()), float(means.std(ddof=1)) / math.sqrt(_BLOCKS)
    failed = mean > max(_LEAST, _STANDARD_ERRORS * error)
    says = f"over the second half of {steps} steps losses are {100 * mean:+.2g} % ± {100 * 2 * error:.2g} % off"
    outcome = HarmOutcome.FAILED if failed else HarmOutcome.PASSED
    return HarmTest(kind=_KIND, outcome=outcome, steps=steps, pairs=1, says=says)
