"""Durations as text: what is written is read back as the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.durations import Duration, DurationUnit


@given(st.floats(1e-3, 1e15), st.sampled_from(list(DurationUnit)))
def test_what_is_written_is_read_back(amount: float, unit: DurationUnit):
    duration = Duration(amount, unit)
    again = Duration.parse(str(duration))
    assert again.unit is unit
    assert again.amount == pytest.approx(amount, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "written"), [("1e9tok", "1e9tok"), ("2000ba", "2000steps"), ("2.5ep", "2.5ep"), ("90min", "1.5h")]
)
def test_the_shortest_text(text: str, written: str):
    assert str(Duration.parse(text)) == written
