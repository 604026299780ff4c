"""Charts are drawn to scale, keep gaps as gaps, and never let a text or a number that is none break the drawing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.records.proof import Interval
from vivace.report.charts.bars import Piece, bar, span_bar
from vivace.report.charts.curves import curves
from vivace.report.charts.intervals import Axis, interval_chart

NAN, INF = float("nan"), float("inf")


def points_of(drawing: str, kind: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]
        for text in re.findall(rf'<{kind} class="[\w ]+" points="([^"]*)"', drawing)
    ]


def test_pieces_of_a_bar_follow_each_other_to_scale():
    drawing = bar([Piece("a", 10.0, "first"), Piece("b", 30.0, 'a "label" <b>')], 80.0)
    assert re.findall(r'x="([\d.]+)%" y="0" width="([\d.]+)%"', drawing) == [("0.000", "12.500"), ("12.500", "37.500")]
    assert "&lt;b&gt;" in drawing
    assert "<b>" not in drawing


def test_a_rung_floats_between_its_values():
    drawing = span_bar(40.0, 60.0, 100.0, "won", "−20 ms")
    assert ('40.000%" y="0" width="20.000%') in drawing


@pytest.mark.parametrize("full", [0.0, NAN, INF])
def test_a_bar_without_a_scale_is_empty(full: float):
    assert set(re.findall(r'width="([\d.a-z]+)%" height="100%"', bar([Piece("a", 1.0, "")], full))) == {"0.000"}


def test_a_gap_in_a_curve_stays_a_gap():
    drawing = curves([], [(3.0, 2.0, None, 1.0, NAN, 1.0, 0.5)], "loss")
    assert drawing is not None
    assert [len(run) for run in points_of(drawing, "polyline")] == [2, 2, 2]  # the middle one: a step on its own


def test_the_band_lies_between_the_lowest_and_the_highest_run():
    drawing = curves([(2.0, 1.0), (4.0, 3.0)], [], "loss")
    assert drawing is not None
    ((first, second, third, fourth),) = points_of(drawing, "polygon")
    assert first[1] < fourth[1]  # at step 1: the upper edge is above the lower (SVG counts downwards)
    assert second[1] < third[1]


def test_runs_of_different_length_make_one_band():
    assert curves([(2.0, 1.0, 0.5), (4.0,), (NAN, NAN)], [(1.0, 1.0)], "loss") is not None


@pytest.mark.parametrize("series", [(), (None, None), (NAN, INF, -INF)])
def test_nothing_finite_gives_no_drawing(series: tuple):
    assert curves([series], [series], "loss") is None


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.floats(), max_size=20), max_size=3))
def test_any_losses_give_finite_coordinates(runs: list[list[float | None]]):
    drawing = curves(runs, runs, "loss")
    if drawing is not None:
        coordinates = [
            n for kind in ("polyline", "polygon") for run in points_of(drawing, kind) for p in run for n in p
        ]
        assert all(-1000 <= n <= 2000 for n in coordinates)
        assert "nan" not in drawing


def test_twice_and_half_as_fast_are_equally_far_from_no_change():
    axis = Axis(0.25, 4.0)
    assert axis.percent(2.0) - axis.percent(1.0) == pytest.approx(axis.percent(1.0) - axis.percent(0.5))


def test_an_interval_is_drawn_from_its_low_to_its_high_end():
    value = Interval(median=2.0, low=1.0, high=4.0)
    drawing = interval_chart([("last", value), ("alone", None)], Axis(1.0, 4.0))
    assert 'x1="0.00%" x2="100.00%"' in drawing
    assert 'cx="50.00%"' in drawing
    assert drawing.count("<circle") == 1
