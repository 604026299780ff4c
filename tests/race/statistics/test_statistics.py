"""Ratios and their intervals: worked values, laws, and a small part of the calibration."""

from __future__ import annotations

import math
import sys
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.race.statistics.comparing import amount_to_target, is_clear, may_end, speedup
from vivace.race.statistics.looks import share_of_look
from vivace.race.statistics.ranks import _cumulative, ratio_by_ranks
from vivace.race.statistics.sample import Estimate, Sample

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

NEVER = math.inf
amounts = st.lists(st.one_of(st.floats(0.1, 9.9), st.just(NEVER)), min_size=4, max_size=7).map(tuple)


def test_welch_by_hand():
    """Of logarithms 0, 1, 2 and 0, 0, 3: difference 0, variance 1/3 + 1, freedom (4/3)² / ((1/9 + 1) / 2) = 3.2."""
    a, b = (Sample(tuple(math.exp(x) for x in logs)) for logs in ((0, 1, 2), (0, 0, 3)))
    ratio = speedup(a, b, 0.95)
    assert ratio.value == pytest.approx(1.0)
    t = math.log(ratio.high) / math.sqrt(1 / 3 + 1)
    assert 2.776 < t < 3.182  # between the quantiles for 4 and for 3 degrees of freedom


def test_the_rank_distribution_is_counted_exactly():
    ranks = (2, 4, 6, 9, 9)  # doubled, the last two tied
    sums = sorted(sum(chosen) for chosen in combinations(ranks, 2))
    cumulative = _cumulative(ranks, 2)
    for total in range(sum(ranks) + 1):
        assert cumulative[total] == pytest.approx(sum(s <= total for s in sums) / len(sums))


def test_the_rank_interval_without_censoring_is_that_of_ordered_ratios():
    """Of 4 against 4 runs, one in 70 orders is as extreme: at 97 % the interval is that of all 16 ratios."""
    a, b = Sample((2.0, 3.0, 5.0, 7.0)), Sample((1.0, 1.1, 1.3, 1.7))
    ratios = sorted(x / y for x in a.amounts for y in b.amounts)
    found = ratio_by_ranks(a, b, 0.97)
    assert (found.low, found.high) == (pytest.approx(ratios[0]), pytest.approx(ratios[-1]))
    assert found.value == pytest.approx(math.sqrt(ratios[7] * ratios[8]), rel=0.05)


def test_an_entry_that_never_arrives_is_slower_without_a_bound():
    baseline, entry = Sample((8.0, 9.0, 7.0, 8.5, 7.7), 20.0), Sample((NEVER,) * 5, 20.0)
    ratio = speedup(baseline, entry, 0.95)
    assert (ratio.low, is_clear(ratio)) == (0.0, True)
    assert ratio.high < 9.0 / 20.0 + 1e-9
    back = speedup(entry, baseline, 0.95)
    assert (back.low, back.high) == (pytest.approx(1 / ratio.high), math.inf)


@given(amounts, amounts, st.floats(0.2, 5))
def test_laws(first: tuple[float, ...], second: tuple[float, ...], scale: float):
    a, b = Sample(first, 10.0), Sample(second, 10.0)
    ratio, back = speedup(a, b, 0.95), speedup(b, a, 0.95)
    assert ratio.low <= ratio.high
    if a.arrived and b.arrived:  # the other way round is the reciprocal
        assert ratio.low * back.high == pytest.approx(1.0) or (ratio.low, back.high) == (0.0, math.inf)
    scaled = speedup(
        Sample(tuple(scale * x for x in first), scale * 10), Sample(tuple(scale * x for x in second), scale * 10), 0.95
    )
    assert scaled.low == pytest.approx(ratio.low)  # the unit does not matter
    assert scaled.high == pytest.approx(ratio.high)
    wider = speedup(a, b, 0.99)
    assert wider.low <= ratio.low * (1 + 1e-9)
    assert wider.high >= ratio.high * (1 - 1e-9)


def test_the_amount_to_target():
    assert amount_to_target(Sample((2.0, 8.0))).value == pytest.approx(4.0)
    assert amount_to_target(Sample((5.0,))) == Estimate(pytest.approx(5.0), 0.0, math.inf)
    some = amount_to_target(Sample((1.0, 2.0, 3.0, 4.0, 5.0, NEVER)))
    assert some == Estimate(3.5, 1.0, NEVER)  # 1 - 2 / 2**6 = 97 % between the first and the last
    assert amount_to_target(Sample((1.0, NEVER, NEVER))) == Estimate(NEVER, 0.0, NEVER)


def test_a_race_ends_when_every_answer_is_clear_and_not_before_the_third_round():
    clear, open_ = Estimate(2, 1.5, 3), Estimate(2, 0.9, 3)
    assert not may_end(2, 5, [clear])
    assert may_end(3, 5, [clear])
    assert not may_end(3, 5, [clear, open_])
    assert may_end(5, 5, [open_])
    shares = [share_of_look(seeds) for seeds in range(1, 30)]
    assert shares == sorted(shares)
    assert shares[0] == shares[2] == 0.96


@pytest.mark.parametrize(
    ("kind", "arrive", "gain"),
    [("log-normal 20 %", 1.0, 1.0), ("log-normal 20 %", 0.7, 1.0), ("Weibull 2", 0.7, 1.3)],
)
def test_a_part_of_the_calibration(kind: str, arrive: float, gain: float):
    """All of it: benchmarks/race_calibration.py. Of 400 draws 94 % cover in 99 of 100 tests when 96 % do."""
    from race_calibration import Cell, tally

    row = tally(Cell(kind, 5, arrive, gain), 400)
    assert row["coverage"] >= 0.94
    assert row["false_faster"] in ("",) or row["false_faster"] <= 0.04
