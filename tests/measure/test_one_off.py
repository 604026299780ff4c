"""A step that is slow once, for inputs of a size not seen before, is no part of a training's speed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.measure.inside.one_off import first_of_its_size
from vivace.measure.inside.timeline import Step


def steps(*batches: int, ms: float = 10.0, slow: dict[int, float] | None = None) -> list[Step]:
    made = [Step(forwards=[{"shape": (batch, 3), "grad": True}]) for batch in batches]
    for number, step in enumerate(made):
        step.phases_ms["backward"] = (slow or {}).get(number, ms)
    return made


def test_the_first_small_batch_is_left_out_when_it_is_slow():
    assert first_of_its_size(steps(8, 8, 8, 2, 8, 8, slow={3: 900.0})) == 3
    assert first_of_its_size(steps(8, 8, 2, 8, 8, 2, slow={2: 900.0, 5: 900.0})) == 2  # the second one comes again


@pytest.mark.parametrize(
    "kept",
    [
        steps(8, 8, 8, 2, 8, 8),  # as fast as the others
        steps(8, 8, 8, 8, 8, 8, slow={3: 900.0}),  # of the same size: a wait, which is part of the job
        steps(8, 8, 8, 2, 8, 8, slow={1: 900.0}),
        steps(8, 7, 6, 5, 8, 8, slow={2: 900.0}),  # inputs vary
        steps(8, 2, 8, slow={1: 900.0}),  # too few to know what is usual
        [],
    ],
)
def test_what_is_part_of_the_job_stays(kept: list[Step]):
    assert first_of_its_size(kept) is None


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


def test_a_run_says_what_it_left_out(tmp_path: Path, vivace: Callable):
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ("--json", "--warmup", "5", "--steps", "20")
    record = vivace("measure", *options, "--", sys.executable, str(tmp_path / "train.py")).record
    (note,) = (note for note in record["notes"] if "left out" in note)
    assert "the first with inputs of another size" in note
    assert record["input_shapes"] == 2
    assert record["steps"] == 19
    assert max(record["series_ms"]["step"]) < 1000
    assert len(record["losses"]) == len(record["series_ms"]["step"]) == 19
