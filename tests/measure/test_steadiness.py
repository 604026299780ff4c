"""Steps that vary so much that their median says little are noted, with figures; others are not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.steadiness import steps_vary
from vivace.records.measurement import Measurement

SHARES = st.lists(st.floats(0.75, 1.25), min_size=5, max_size=60)


@given(st.floats(0.1, 1e4), SHARES)
def test_steps_that_differ_by_a_quarter_are_steady(step_ms: float, shares: list[float]):
    assert steps_vary([step_ms * share for share in shares], {}) is None


@given(st.floats(0.1, 1e4), st.floats(3.1, 50.0), SHARES)
def test_where_every_second_step_is_three_times_as_long_the_figures_are_noted(
    step_ms: float, longer: float, shares: list[float]
):
    steps = [step_ms, longer * step_ms] * len(shares)
    seen = steps_vary(steps, {"loader": [0.0, 1.0] * len(shares), "forward": [1.0, 1.0] * len(shares)})
    assert seen is not None
    assert (seen.shortest_ms, seen.longest_ms) == (step_ms, longer * step_ms)
    assert seen.mean_ms == pytest.approx(step_ms * (1 + longer) / 2)
    assert seen.phase == "loader"


def test_rare_stalls_that_double_the_mean_are_noted_although_nine_of_ten_steps_agree():
    """As seen: 7.7 ms in the middle, 17.5 on average."""
    seen = steps_vary([7.7] * 47 + [165.0] * 3, {})
    assert seen is not None
    assert (seen.median_ms, seen.p90_ms) == (7.7, 7.7)
    assert seen.mean_ms == pytest.approx(17.1, abs=0.1)


def test_few_steps_say_nothing():
    assert steps_vary([1.0, 100.0, 1.0, 100.0], {}) is None
    assert steps_vary([], {}) is None


STALLS = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Stalling(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.4 if index % 4 == 0 else 0.001)
        return torch.ones(4)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for row in DataLoader(Stalling(), 1):
    optimizer.zero_grad()
    model(row).sum().backward()
    optimizer.step()
"""


def test_a_loader_that_stalls_now_and_then_counts_in_the_headline_and_is_noted(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "train.py").write_text(STALLS)
    command = (sys.executable, str(tmp_path / "train.py"))
    done = vivace_here("measure", "--steps", "12", "--warmup", "4", "--no-profile", "--", *command)
    record = Measurement.load(done.folder / "measurement.json")
    seen = record.steps_vary
    assert seen is not None
    assert record.step_ms is not None
    assert seen.phase == "loader"
    assert seen.longest_ms >= 400.0
    assert record.step_ms.mean >= 100.0  # three of twelve steps
    assert record.samples_per_s == pytest.approx(1e3 / record.step_ms.mean)
    shown = " ".join(done.out.split())
    assert f"{record.step_ms.mean:.2f} ms per step (mean of 12 steps after " in shown
    assert f"typical step: {record.step_ms.median:.2f} ms (median; " in shown
    assert "most of it in loader wait: the median says little" in shown
