"""AlgoPerf's score: the worked vector, the integral it stands for, and the leaderboards as data."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.race.algoperf import leaderboards, profile, score, score_races
from vivace.records.race import Clock, Outcome, Race, RaceEntry, RaceRun

VECTOR = [1, 1.2, 2, 3.9, 4.1, math.inf, 1, 1.5]


def test_the_worked_vector_and_the_competitions_hundred_points():
    assert score(VECTOR) == pytest.approx(0.5583, abs=5e-5)
    points = [1 + 3 * n / 99 for n in range(100)]
    values = [profile(VECTOR, tau) for tau in points]
    trapezoidal = sum((a + b) / 2 for a, b in itertools.pairwise(values)) / 99
    assert trapezoidal == pytest.approx(0.5593, abs=5e-5)


@given(st.lists(st.one_of(st.floats(1, 10), st.just(math.inf)), min_size=1, max_size=12))
def test_the_score_is_the_mean_of_the_profile(ratios: list[float]):
    taus = [1 + 3 * (n + 0.5) / 2000 for n in range(2000)]
    assert score(ratios) == pytest.approx(sum(profile(ratios, tau) for tau in taus) / 2000, abs=1e-3)


def race_with(times: dict[str, list[float]]) -> Race:
    runs = [
        RaceRun(
            entry=name, seed=seed, outcome=Outcome.ARRIVED if math.isfinite(t) else Outcome.LIMIT, time_s=t, wall_s=1
        )
        for name, values in times.items()
        for seed, t in enumerate(values)
    ]
    entries = tuple(RaceEntry(name=name, command=("x",)) for name in times)
    return Race(target="a >= 1", clock=Clock.TRAINING, seeds=3, entries=entries, runs=tuple(runs))


def test_races_are_workloads_and_the_median_over_seeds_counts():
    first = race_with({"a": [1, 2, 30], "b": [4, 4, 4]})
    second = race_with({"a": [10, math.inf, math.inf], "b": [5, 5, 5]})
    third = race_with({"a": [9, 9, 9], "b": [1, 1, 1]})
    b, a = score_races([first, second, third])
    assert (b.name, b.ratios) == ("b", (2.0, 1.0, 1.0))
    assert (a.name, a.ratios) == ("a", (1.0, math.inf, math.inf))  # nine times as long counts as never
    assert (a.score, b.score) == (pytest.approx(1 / 3), pytest.approx((2 / 3 + 1 + 1) / 3))
    with pytest.raises(UserError, match="same entries"):
        score_races([first, race_with({"a": [1]})])


def test_the_final_leaderboard_corrects_the_slides():
    final, course = leaderboards()
    external = sorted(final.tracks["external"], key=final.tracks["external"].__getitem__, reverse=True)
    assert external[:2] == ["Shampoo", "Schedule-Free AdamW"]
    for track in ("external", "self-tuning"):
        assert set(final.tracks[track]) == set(course.tracks[track])
        changed = {n for n, value in final.tracks[track].items() if abs(value - course.tracks[track][n]) > 0.006}
        assert changed == ({"Schedule-Free AdamW", "CASPR Adaptive"} if track == "external" else {"sinv6_75", "sinv6"})
