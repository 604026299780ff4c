"""Slow tests come first, on every worker."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from ordering import arranged, expected_s, read_durations, write_durations

TESTS = [f"tests/{file}.py::test_{n}" for file in "abcdef" for n in range(4)]
SLOW = {"tests/a.py::test_0": 50.0, "tests/a.py::test_1": 10.0, "tests/e.py::test_3": 40.0, "tests/f.py::test_2": 30.0}


def test_each_worker_begins_with_its_share_of_the_slow_ones():
    order = [TESTS[index] for index in arranged(TESTS, [SLOW.get(test, 0.1) for test in TESTS], 3)]
    shares = order[:8], order[8:16], order[16:]
    assert [share[0] for share in shares] == ["tests/a.py::test_0", "tests/e.py::test_3", "tests/f.py::test_2"]
    assert shares[0][1] == "tests/a.py::test_1"  # files stay together
    assert order[17:] == [test for test in TESTS if test not in SLOW][-7:]  # and the rest in its order


@given(st.lists(st.floats(0, 99), max_size=40), st.integers(1, 5))
def test_every_test_runs_once(seconds: list[float], workers: int):
    tests = [f"{number // 7}::{number}" for number in range(len(seconds))]
    assert sorted(arranged(tests, seconds, workers)) == list(range(len(seconds)))


def test_what_was_not_recorded_is_told_by_the_fixtures():
    known = {"a::b": 3.0}
    assert expected_s("a::b[x]", ["vivace"], known) == 3.0
    assert expected_s("a::c", ["tmp_path", "vivace_here"], known) < expected_s("a::c", ["tmp_path", "vivace"], known)
    assert expected_s("a::c", ["tmp_path"], known) == 0.0


def test_durations_are_kept_without_parameters_and_quick_ones(tmp_path: Path):
    write_durations({"a::b[1]": 2.0, "a::b[2]": 3.04, "a::c": 0.2, "d::e": 9.0}, tmp_path / "durations.csv")
    assert read_durations(tmp_path / "durations.csv") == {"d::e": 9.0, "a::b": 3.0}
    assert (tmp_path / "durations.csv").read_text().startswith("test,seconds\nd::e")
