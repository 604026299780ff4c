"""The interval that files give each other: it holds what it says on files of the same kind, and a long file
does not outvote the others.
"""

from __future__ import annotations

import csv
import random
from math import exp, log
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.plan.grading.spread import FileErrors, inside, left_out_share, spread_of, stretch_for
from vivace.plan.run.intervals import Spread, interval, printed_spread

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "plan_interval.csv"


def drawn(files: int, between: float, within: float, seed: int, rows: int = 20) -> list[FileErrors]:
    """Files whose rows share an error of their own."""
    source = random.Random(seed)
    means = [source.gauss(0, between) for _ in range(files)]
    return [
        FileErrors(f"file {n}", tuple(source.gauss(mean, within) for _ in range(rows))) for n, mean in enumerate(means)
    ]


def test_a_new_file_lies_in_the_interval_of_the_others():
    held = []
    for seed in range(40):
        files = drawn(15, 0.10, 0.06, seed)
        spread = spread_of(files[:-1], stretch_for(files[:-1]))
        held.append(inside(files[-1], spread))
    assert sum(held) / len(held) >= 0.93


def test_what_rows_of_one_file_share_is_not_averaged_away():
    """Rows that lie close together, in files that lie apart: the interval must span the files."""
    files = drawn(15, 0.20, 0.01, seed=1)
    spread = spread_of(files, stretch_for(files))
    assert spread.high / spread.low > exp(2 * 1.5 * 0.20)


def test_a_long_file_counts_once():
    files = drawn(10, 0.10, 0.05, seed=2, rows=10)
    long = FileErrors("long", tuple(0.01 * (n % 3) for n in range(10_000)))
    short = FileErrors("short", long.logs[:10])
    assert spread_of([*files, long]).high == pytest.approx(spread_of([*files, short]).high, rel=0.03)


def test_a_single_row_counts_less_than_a_file():
    assert FileErrors("one", (0.3,)).weight == pytest.approx(0.2)
    assert FileErrors("five", (0.3,) * 5).weight == FileErrors("fifty", (0.3,) * 50).weight == 1.0


def test_the_estimate_lies_inside_even_when_every_row_was_slower():
    files = [FileErrors(f"{n}", (0.3, 0.31, 0.32, 0.33, 0.34)) for n in range(4)]
    spread = spread_of(files)
    assert spread.low == 1.0
    assert spread.high > 1.3


logs = st.lists(st.floats(-1, 1), min_size=1, max_size=12).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.lists(logs, min_size=3, max_size=6))
def test_more_stretch_never_holds_less(drawn_logs):
    files = [FileErrors(str(n), each) for n, each in enumerate(drawn_logs)]
    shares = [left_out_share(files, stretch) for stretch in (1.0, 1.5, 3.0)]
    assert shares == sorted(shares)
    assert all(spread_of(files, stretch).low <= 1 <= spread_of(files, stretch).high for stretch in (1.0, 3.0))


def test_rows_inside_are_counted():
    each = FileErrors("f", (log(0.9), log(1.0), log(1.3), log(2.0)))
    assert inside(each, Spread(0.95, 1.5)) == 0.5


def test_the_printed_interval_is_the_one_that_the_benchmark_found():
    with RESULTS.open() as file:
        found = {row["kind"]: row for row in csv.DictReader(file) if row["file"] == "all files"}
    for kind in ("time", "memory"):
        spread = printed_spread(kind)
        assert spread.low == pytest.approx(float(found[kind]["low_without"]), abs=0.006)
        assert spread.high == pytest.approx(float(found[kind]["high_without"]), abs=0.006)
        assert float(found[kind]["inside_without_pct"]) >= 94.5


def test_a_whole_run_adds_what_runs_lose():
    """The estimate takes 92 % of the wall clock for training; the ends are all of it and 80 %."""
    step, run = printed_spread("time"), printed_spread("run")
    assert run.low == pytest.approx(step.low * 0.92)
    assert run.high == pytest.approx(step.high * 0.92 / 0.80)


def test_an_interval_scales_with_its_estimate():
    one, ten = interval(1.0, "time"), interval(10.0, "time")
    assert (ten.low, ten.high) == (pytest.approx(10 * one.low), pytest.approx(10 * one.high))
