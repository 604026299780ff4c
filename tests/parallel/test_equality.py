"""Every layout trains what one process trains: losses, gradient norms, clipping and weights, in fp64.

A bounded part of benchmarks/parallel_equality.py, whose table has all layouts of up to eight processes.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.forked_ranks import Outcome, largest_difference, outcomes
from vivace.records.layout import Layout, parse_layout
from vivace.train.settings import TrainSettings, with_changes

CHANGES = (
    "engine.precision=fp64", "data.seq_len=16", "sizes.hidden=32", "sizes.vocab=64", "sizes.layers=4",
    "optim.lr=0.01", "optim.clip_norm=0.5", "steps=2", "global_batch=8",
)  # fmt: skip
BASE = with_changes(TrainSettings(), CHANGES)
KINDS = {
    "gpt-2": ("sizes.biases=true", "sizes.positions=learned", "sizes.tied=true"),
    "llama": ("sizes.gated=true", "sizes.kv_heads=2", "sizes.ffn=48"),
}


def on(settings_: TrainSettings, layout: Layout | str) -> TrainSettings:
    chosen = parse_layout(layout) if isinstance(layout, str) else layout
    return settings_.model_copy(update={"layout": chosen})


def assert_equal(found: Outcome, alone: Outcome, tolerance: float = 1e-10) -> None:
    assert max(largest_difference(found, alone)) < tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_equal_one(kind: str):
    """One start of two ranks trains on every technique in turn."""
    base = with_changes(BASE, KINDS[kind])
    layouts = {
        "gpt-2": ("dp2,mb2", "fs2", "fs2,zero1", "fs2,zero2,mb2", "tp2", "pp2,gpipe", "cp2"),
        "llama": (
            "dp2,mb4,recompute-full", "fs2,recompute-selective", "tp2,nosp", "pp2,v2,zbv", "pp2,zb1p",
            "cp2,mb4,recompute-selective",
        ),
    }[kind]  # fmt: skip
    alone = outcomes(1, [on(base, "mb8")])[0]
    assert max(alone.norms) > 0.5  # clipping is at work
    for layout, found in zip(layouts, outcomes(2, [on(base, layout) for layout in layouts]), strict=True):
        assert max(largest_difference(found, alone)) < 1e-10, layout


PAIRS = (
    "dp2,fs2", "dp2,tp2", "dp2,pp2,v2", "dp2,cp2,mb2", "fs2,tp2,mb2", "fs2,pp2", "fs2,cp2", "tp2,pp2", "cp2,tp2",
    "cp2,pp2",
)  # fmt: skip


@example("fs2,tp2,mb2", "llama", 1)
@given(st.sampled_from(PAIRS), st.sampled_from(sorted(KINDS)), st.integers(0, 3))
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pairs_of_dimensions_equal_one_process(layout: str, kind: str, seed: int):
    base = with_changes(BASE, (*KINDS[kind], f"seed={seed}", "steps=2"))
    assert_equal(outcomes(4, [on(base, layout)])[0], outcomes(1, [on(base, "mb8")])[0])
