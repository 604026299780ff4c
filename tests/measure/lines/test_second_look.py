"""Time that samples charge to the next call goes back to the line that spent it; none appears or vanishes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.lines import tracing
from vivace.measure.inside.lines.second_look import corrected, doubtful
from vivace.measure.inside.lines.tracing import LineTracer
from vivace.protocol.sampling import SeenLine


def line(number: int, ms: float, late: bool = True, **more) -> SeenLine:
    return SeenLine(file="train.py", line=number, first_line=number - 1, ms=ms, waiting_ms=ms / 2, late=late, **more)


def test_an_operator_gets_the_time_that_landed_on_the_call_after_it():
    traced = {("train.py", 4): 9.8, ("train.py", 5): 0.1, ("train.py", 9): 5.0}
    before = {("train.py", 5): {("train.py", 4)}, ("train.py", 9): {("train.py", 5)}}
    found = corrected([line(5, 10.0, work="elementwise"), line(9, 5.0)], traced, before)
    assert {(one.line, one.first_line, one.work): pytest.approx(one.ms) for one in found} == {
        (4, 4, "elementwise"): 9.8, (5, 5, "elementwise"): 0.2, (9, 8, ""): 5.0,
    }  # fmt: skip


def test_a_loop_that_tracing_slows_down_takes_nothing_from_an_innocent_line():
    """Traced it takes 60 ms, sampled 4: but the lines around it are charged what they take."""
    traced = {("train.py", 4): 60.0, ("train.py", 5): 2.9}
    lines = [line(4, 4.0, late=False), line(5, 3.0, late=False)]
    assert corrected(lines, traced, {("train.py", 5): {("train.py", 4)}}) == lines


places = st.tuples(st.just("train.py"), st.integers(1, 6))
milliseconds = st.integers(0, 40_000).map(lambda us: us / 1000)


@given(
    st.lists(st.builds(line, st.integers(1, 6), milliseconds)),
    st.dictionaries(places, milliseconds),
    st.dictionaries(places, st.sets(places)),
)
def test_no_time_appears_or_vanishes(lines, traced, before):
    found = corrected(lines, traced, before)
    for name in ("ms", "waiting_ms"):
        assert sum(getattr(one, name) for one in found) == pytest.approx(sum(getattr(one, name) for one in lines))
    assert all(one.ms >= -1e-9 for one in found)


def test_only_late_samples_of_the_users_own_lines_are_in_doubt():
    assert doubtful([line(1, 6.0)], 100.0, 0.05)
    assert not doubtful([line(1, 6.0, late=False), line(2, 50.0, leaf_in_torch=True)], 100.0, 0.05)


def traced_work(numbers: list[int]) -> int:
    found = -1 in numbers  # an operator
    return helper(found)


def helper(found: bool) -> int:
    return int(found)


def test_the_tracer_times_lines_of_the_users_own_code_and_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(tracing, "is_library", lambda name: name != __file__)
    before = sys.gettrace()
    sys.settrace(None)
    try:
        assert LineTracer.can_run()
        tracer = LineTracer()
        tracer.begin()
        for _ in range(3):
            traced_work(list(range(300_000)))
        tracer.finish()
        assert sys.gettrace() is None
        assert sys._getframe().f_trace is None
    finally:
        sys.settrace(before)
    lines = Path(__file__).read_text().splitlines()
    spent = {lines[number - 1].strip(): ns for (_, number), ns in tracer.spent_ns.items()}
    operator = spent["found = -1 in numbers  # an operator"]
    assert operator > 20 * spent["return helper(found)"]
    assert operator > 20 * spent["return int(found)"]
    keys = {lines[number - 1].strip(): (code, number) for code, number in tracer.spent_ns}
    assert keys["found = -1 in numbers  # an operator"] in tracer.before[keys["return helper(found)"]]
