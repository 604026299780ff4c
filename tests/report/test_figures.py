"""Numbers on the page: what is missing or not finite has a word, and units follow the size."""

from __future__ import annotations

import doctest

import pytest

from vivace.report import figures


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(figures).failed == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (float("nan"), "NaN"), (float("-inf"), "−∞"), (0.0, "0"), (64, "64"), (1e-9, "1.000e-09")],
)
def test_every_number_has_a_text(value: float | None, text: str):
    assert figures.plain(value) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (100.0, 62.0, "−38 %"),
        (1.0, 1.5, "+50 %"),
        (1.0, 1.001, "same"),
        (0.0, 1.0, ""),
        (None, 1.0, ""),
        (1.0, float("nan"), ""),
    ],
)
def test_a_change_is_told_in_percent_where_it_can_be(before: float | None, after: float, text: str):
    assert figures.signed_percent(before, after) == text
