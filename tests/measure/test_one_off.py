"""A step that is slow once, for inputs of a size not seen before, is no part of a training's speed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.measure.inside.steps.one_off import first_of_its_size
from vivace.measure.inside.steps.timeline import Step
from vivace.measure.one_offs import without_one_offs
from vivace.protocol.payload import Payload, Series


def steps(*batches: int, ms: float = 10.0, slow: dict[int, float] | None = None) -> list[Step]:
    made = [Step(forwards=[{"shape": (batch, 3), "grad": True}]) for batch in batches]
    for number, step in enumerate(made):
        step.phases_ms["backward"] = (slow or {}).get(number, ms)
    return made


def test_the_first_small_batch_is_left_out_when_it_is_slow():
    assert first_of_its_size(steps(8, 8, 8, 2, 8, 8, slow={3: 900.0})) == 3
    assert first_of_its_size(steps(8, 8, 2, 8, 8, 2, 8, slow={2: 900.0})) == 2


@pytest.mark.parametrize(
    "kept",
    [
        steps(8, 8, 8, 2, 8, 8),  # as fast as the others
        steps(8, 8, 8, 8, 8, 8, slow={3: 900.0}),  # of the same size: a wait, which is part of the job
        steps(8, 8, 8, 2, 8, 8, slow={1: 900.0}),
        steps(8, 7, 6, 5, 8, 8, slow={2: 900.0}),  # inputs vary
        steps(8, 8, 2, 8, 8, 2, 8, slow={2: 900.0, 5: 900.0}),  # it comes again
        steps(8, 8, 2, 8, 8, 2, 8, slow={5: 900.0}),  # not the first one
        steps(8, 8, 32, 8, 8, 8, slow={2: 40.0}),  # larger inputs take longer
        steps(8, 2, 8, slow={1: 900.0}),  # too few to know what is usual
        [],
    ],
)
def test_what_is_part_of_the_job_stays(kept: list[Step]):
    assert first_of_its_size(kept) is None


def payload(one_off: int | None, step: list[float], samples: list[int]) -> Payload:
    return Payload(one_off_step=one_off, series=Series(step), samples=samples)


def test_ranks_leave_the_same_step_out():
    """One found it; the other, whose inputs stayed as they were, only waited."""
    ranks = [payload(2, [10.0, 10.0, 900.0, 11.0], [8, 8, 2, 8]), payload(None, [10.0, 10.0, 899.0, 12.0], [8] * 4)]
    shorter, (note,) = without_one_offs(ranks)
    assert [p.series.step for p in shorter] == [[10.0, 10.0, 11.0], [10.0, 10.0, 12.0]]
    assert [p.samples for p in shorter] == [[8, 8, 8]] * 2
    assert note == "left out: one step of 900 ms, the first with inputs of another size"
    assert without_one_offs([payload(None, [1.0], [8])]) == ([payload(None, [1.0], [8])], [])


SCRIPT = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
seen = {10}
for epoch in range(50):
    for (x,) in DataLoader(TensorDataset(torch.randn(165, 8)), 10):
        loss = model(x).square().mean()
        if len(x) not in seen:
            seen.add(len(x))
            time.sleep(1.0)  # chooses its kernels
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(0.002)
"""


def test_a_run_says_what_it_left_out(tmp_path: Path, vivace_here: Callable):
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ("--json", "--warmup", "5", "--steps", "20")
    record = vivace_here("measure", *options, "--", sys.executable, str(tmp_path / "train.py")).record
    (note,) = (note for note in record["notes"] if "left out" in note)
    assert "the first with inputs of another size" in note
    assert record["input_shapes"] == 2
    assert record["steps"] == 19
    assert max(record["series_ms"]["step"]) < 1000
    assert len(record["losses"]) == len(record["series_ms"]["step"]) == 19
