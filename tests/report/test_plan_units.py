"""Units of a plan: the one that a reader would choose, and never a figure that rounds to nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.records.plan import PlanInterval
from vivace.report.plan_units import carbon, days, energy, figure, gpu_hours, money, step

amounts = st.floats(1e-9, 1e9)


def around(value: float) -> PlanInterval:
    return PlanInterval(estimate=value, low=0.5 * value, high=2 * value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (30 / 86_400, "30.0 s"),
        (5 / 1440, "5.00 min"),
        (0.05, "72.0 min"),
        (0.5, "12.0 h"),
        (1.5, "36.0 h"),
        (20.0, "20.0 days"),
        (622.4, "622 days"),
    ],
)
def test_times(value, text):
    assert days(around(value)).startswith(f"{text} [")


@pytest.mark.parametrize(
    ("value", "text"), [(5e-6, "5.00 Wh"), (0.002, "2.00 kWh"), (28.1, "28.1 MWh"), (1820.0, "1.82 GWh")]
)
def test_energies(value, text):
    assert energy(around(value)).startswith(f"{text} [")


@pytest.mark.parametrize(("value", "text"), [(3e-7, "0.300 g CO2"), (0.004, "4.00 kg CO2"), (25.7, "25.7 t CO2")])
def test_carbon(value, text):
    assert carbon(value) == text


@given(amounts)
def test_nothing_rounds_to_zero(value):
    for text in (days(around(value)), energy(around(value)), gpu_hours(around(value)), step(around(value))):
        first = float(re.match(r"[\d,.]+", text)[0].replace(",", ""))
        assert first > 0, text


@given(amounts)
def test_a_figure_is_right_to_three_digits(value):
    assert float(figure(value).replace(",", "")) == pytest.approx(value, rel=0.0051, abs=1e-9)


@given(st.floats(1e-6, 1e9))
def test_what_costs_something_is_not_free(value):
    assert float(money(value, "EUR").split()[0].replace(",", "")) > 0
