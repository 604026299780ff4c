"""The engine's options on two ranks: they train what one process trains. All: benchmarks/parallel_options.py."""

from __future__ import annotations

import pytest

from benchmarks.forked_ranks import largest_difference, outcomes
from benchmarks.parallel_options import LIMITS, settings_for
from vivace.errors import UserError
from vivace.train.settings import check

EXACT = (
    ("fs2,mb4", ("engine.offload=true",)),
    ("fs2,zero1,mb2", ("engine.offload=true", "engine.prefetch=0")),
    ("dp2,mb2", ("engine.find_unused=true",)),
)
BF16 = ("dp2,mb4", "fs2,zero2,mb4", "tp2,mb8", "pp2,mb2", "cp2,mb8")


@pytest.mark.parametrize("precision", ["fp64", "bf16"])
def test_options_change_nothing_but_rounding(precision: str):
    cases = EXACT if precision == "fp64" else [(layout, ()) for layout in BF16]
    alone = outcomes(1, [settings_for(precision, "mb8", ())])[0]
    found = outcomes(2, [settings_for(precision, layout, changes) for layout, changes in cases])
    for (layout, changes), outcome in zip(cases, found, strict=True):
        assert max(largest_difference(outcome, alone)) < LIMITS[precision], (layout, changes)


def test_bf16_is_really_at_work():
    """It differs from fp32, and by as much as its 8 bits can."""
    exact, rounded = outcomes(1, [settings_for(precision, "mb8", ()) for precision in ("fp32", "bf16")])
    assert 1e-6 < largest_difference(rounded, exact)[1] < 1e-2


def test_what_torch_cannot_compile_is_refused_before_it_starts():
    with pytest.raises(UserError, match="loses the DTensors"):
        check(settings_for("fp32", "tp2,mb8", ("engine.compile=true",)), 2)
