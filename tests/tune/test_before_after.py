"""The figures of both sides of a proof."""

from __future__ import annotations

import pytest
from report.made import made_measurement, spread

from vivace.records.measurement import Measurement
from vivace.tune.before_after import side


def run(**phases_ms: float) -> Measurement:
    phases = {name: spread(mean) for name, mean in phases_ms.items()}
    return made_measurement(step_ms=sum(phases_ms.values()), phases_ms=phases)


def test_the_parts_add_up_to_the_step_over_three_rounds():
    """Each round another part is slow: the medians of the parts would add up to 30 ms, of steps that took 50."""
    rounds = [run(loader=30, forward=10, backward=10), run(loader=10, forward=30, backward=10),
              run(loader=10, forward=10, backward=33)]  # fmt: skip
    found = side(rounds, None)
    assert found.phases_ms == pytest.approx({"loader": 50 / 3, "forward": 50 / 3, "backward": 53 / 3})
    assert found.step_ms is not None
    assert found.step_ms.mean == pytest.approx(sum(found.phases_ms.values()))
    assert found.step_ms.mean == pytest.approx(51.0)
    assert found.step_ms.median == 50.0  # of the median run


def test_a_part_that_only_some_rounds_have_counts():
    found = side([run(forward=10), run(forward=10, communication=6)], None)
    assert found.phases_ms == {"forward": 10.0, "communication": 3.0}
