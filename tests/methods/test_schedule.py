"""Shapes of learning-rate schedules: torch's own where it has them, known values elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vivace.methods.schedule import SCHEDULES, Cosine, Exponential, OneCycle, Poly, Staircase, WarmupStableDecay


@given(name=st.sampled_from(sorted(SCHEDULES)), steps=st.integers(2, 500), data=st.data())
def test_a_factor_is_between_none_and_all_and_stays_after_the_end(name: str, steps: int, data: st.DataObject) -> None:
    warmup = data.draw(st.integers(0, steps - 1))
    shape = SCHEDULES[name](steps, warmup)
    factors = [shape(step) for step in range(steps + 5)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert factors[steps:] == pytest.approx([factors[steps - 1]] * 5)
    assert factors[:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)])


def torch_rates(make: object, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    schedule = make(optimizer)  # type: ignore[operator]
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def test_cosine_and_one_cycle_are_torch_s() -> None:
    lr = torch.optim.lr_scheduler
    cosine = torch_rates(lambda optimizer: lr.CosineAnnealingLR(optimizer, T_max=49), 50)
    assert [Cosine(50)(step) for step in range(50)] == pytest.approx(cosine, abs=1e-9)
    one_cycle = torch_rates(
        lambda optimizer: lr.OneCycleLR(optimizer, max_lr=1.0, total_steps=101, pct_start=31 / 101), 101
    )
    mine = [OneCycle(101, up=0.3)(step) for step in range(101)]
    assert mine == pytest.approx(one_cycle, abs=1e-9)


def test_known_values() -> None:
    assert [Poly(5)(step) for step in range(5)] == pytest.approx([1, 0.5625, 0.25, 0.0625, 0])
    assert [Staircase(7)(step) for step in range(7)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.01])
    assert [WarmupStableDecay(11)(step) for step in (0, 7, 8, 9, 10)] == pytest.approx([1, 1, 1, 0.5, 0])
    assert Exponential(3)(1) == pytest.approx(0.1)


@pytest.mark.parametrize(("steps", "warmup"), [(0, 0), (10, 10), (10, -1)])
def test_impossible_lengths_are_refused(steps: int, warmup: int) -> None:
    with pytest.raises(ValueError, match="cannot have a warm-up"):
        Cosine(steps, warmup)
