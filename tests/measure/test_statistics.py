"""One convention for every figure, the same as numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.statistics import percentile, spread

values = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50)


@given(values, st.floats(0, 1))
def test_percentiles_are_numpys(numbers: list[float], share: float):
    assert percentile(numbers, share) == pytest.approx(float(np.quantile(numbers, share)), rel=1e-9, abs=1e-6)


@given(values)
def test_the_spread_is_in_order(numbers: list[float]):
    figures = spread(numbers)
    assert min(numbers) <= figures.p10 <= figures.median <= figures.p90 <= max(numbers)
    assert figures.mean == pytest.approx(sum(numbers) / len(numbers))
