"""A longer queue of batches: found when a few steps wait and most do not; then the loader prepares more ahead."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import measurement
from practices.loaders import loader

from vivace.practices.prefetch import PRACTICE, find

WITH_WORKERS = {"num_workers": 4, "prefetch_factor": 2}
# Two of thirty steps wait 150 ms each: 10 ms per step.
ACCIDENTS = (0.0,) * 9 + (150.0,) + (0.0,) * 15 + (150.0,) + (0.0,) * 4


def waiting(series: tuple[float, ...] = ACCIDENTS, **fields):
    return measurement(
        phases={"loader": sum(series) / len(series)},
        series_ms={"loader": series},
        loaders=(loader(**{**WITH_WORKERS, **fields}),),
    )


def test_found_when_a_few_steps_wait_for_long():
    found = find(waiting())
    assert found is not None
    assert found.exposed_ms == 10.0
    assert found.setting == "prefetch=4"
    assert found.evidence["waits"] == 2
    assert found.evidence["median_wait_ms"] == 0.0
    assert found.evidence["longest_wait_ms"] == 150.0


@pytest.mark.parametrize(
    ("series", "fields"),
    [
        ((10.0,) * 30, {}),  # every step waits: the workers are too slow
        (((0.0,) * 3 + (40.0,)) * 8, {}),  # every fourth step with four workers: they are too slow together
        (ACCIDENTS, {"num_workers": 0, "prefetch_factor": None}),
        (ACCIDENTS, {"prefetch_factor": 16}),
        (ACCIDENTS, {"epochs": 2, "epoch_start_ms": 300.0}),  # the waits are the starts of epochs
        ((0.0,) * 30, {}),
        ((0.0,) * 29 + (8.0,), {}),  # 0.3 ms per step
    ],
)
def test_not_found_when_present_or_of_no_use(series: tuple[float, ...], fields: dict):
    assert find(waiting(series, **fields)) is None


SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(TensorDataset(torch.ones(8, 1)), 2, num_workers=WORKERS)
    for (row,) in loader:
        model(row).sum().backward()
        optimizer.step()
    print(json.dumps(loader.prefetch_factor))
"""


@pytest.mark.parametrize(("word", "factor"), [("prefetch=8", 8), ("prefetch", 4)])
def test_each_worker_prepares_more_batches(word: str, factor: int, tmp_path: Path):
    done = run_with(SCRIPT.replace("WORKERS", "1"), [word], tmp_path)
    assert done.printed == factor
    assert done.told == {word: f"applied: {factor} batches a worker are prepared ahead"}


def test_without_workers_nobody_prepares(tmp_path: Path):
    done = run_with(SCRIPT.replace("WORKERS", "0"), ["prefetch=8"], tmp_path)
    assert done.printed is None
    assert done.told == {"prefetch=8": "the loader has no workers that could prepare batches ahead"}


@pytest.mark.parametrize("wrong", ["0", "lots"])
def test_a_number_is_asked_for(wrong: str):
    assert PRACTICE.change is not None
    with pytest.raises(ValueError, match="is not a number of batches per worker"):
        PRACTICE.change(wrong)
