"""The budget of a tune, as people write it."""

from __future__ import annotations

import pytest
import typer

from vivace.cli.tune import minutes_of


@pytest.mark.parametrize(("text", "minutes"), [("20", 20), ("2.5", 2.5), ("2m", 2), ("90s", 1.5), ("1h", 60)])
def test_a_budget_has_a_unit_or_is_in_minutes(text, minutes):
    assert minutes_of(text) == pytest.approx(minutes)


@pytest.mark.parametrize("text", ["soon", "m", "2d", ""])
def test_what_is_no_time_is_refused_with_an_example(text):
    with pytest.raises(typer.BadParameter, match="write minutes"):
        minutes_of(text)
