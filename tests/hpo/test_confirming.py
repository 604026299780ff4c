"""The answer's interval covers what it says, and the sentence beside it follows from it."""

from __future__ import annotations

import random

import pytest
from report.made_hpo import made_hpo

from vivace.hpo.confirming import compare
from vivace.report.hpo_view import answer_lines


@pytest.mark.parametrize("seeds", [2, 5])
@pytest.mark.parametrize("shared", [0.0, 3.0])
def test_the_interval_holds_the_true_difference_in_95_of_100(seeds: int, shared: float) -> None:
    """Simulated: two configurations whose runs of one seed share ``shared`` of noise. 95 % ± 1.1 (five standard errors
    of 4,000 draws are 1.7)."""
    random_ = random.Random(f"{seeds} {shared}")
    held, draws = 0, 4000
    for _ in range(draws):
        common = [random_.gauss(0, shared) for _ in range(seeds)]
        best = [0.7 + noise + random_.gauss(0, 1) for noise in common]
        other = [1.0 + noise + random_.gauss(0, 1.5) for noise in common]
        compared = compare(best, other)
        assert compared is not None
        held += compared.low <= -0.3 <= compared.high
    assert held / draws == pytest.approx(0.95, abs=0.017)


def test_fewer_than_two_pairs_give_no_interval() -> None:
    assert compare([1.0], [2.0]) is None


@pytest.mark.parametrize(
    ("best", "own", "direction", "says"),
    [
        ((1.0, 1.25, 0.5), (2.0, 2.0, 2.0), "min", "better than your defaults by 1.083 ± 0.9486 (54 % ± 47)"),
        ((1.0, 1.2, 0.9), (2.0, 2.1, 1.9), "max", "worse than your defaults by 0.9667 ± 0.1434: keep those"),
        (
            (1.0, 2.0, 3.0),
            (2.0, 1.0, 3.5),
            "min",
            "not shown to be better than your defaults: 0.1667 ± 2.586 (7.7 % ± 119)",
        ),
    ],
)
def test_the_sentence_follows_from_the_interval(
    best: tuple[float, ...], own: tuple[float, ...], direction: str, says: str
) -> None:
    (sentence, _style), *_more = answer_lines(made_hpo(best=best, own=own, direction=direction))
    assert sentence.startswith(says)


def test_the_best_of_many_is_shown_to_flatter_itself() -> None:
    lines = [line for line, _style in answer_lines(made_hpo(best=(1.0, 1.1, 0.9), own=(2.0, 2.1, 1.9), seen=0.6))]
    assert "The search saw 0.6000 of it: the best of 3 trials flatters itself by 0.4000." in lines


@pytest.mark.parametrize(("direction", "seen"), [("min", 1.2), ("max", 0.8), ("min", 1.0 - 1e-16), ("max", 1.0)])
def test_a_best_that_fresh_seeds_confirm_is_not_called_flattered(direction: str, seen: float) -> None:
    record = made_hpo(best=(1.0, 1.1, 0.9), own=(2.0, 2.1, 1.9), seen=seen, direction=direction)
    assert any(line.endswith("fresh seeds are no worse.") for line, _style in answer_lines(record))


def test_seeds_that_change_nothing_are_noticed() -> None:
    lines = [line for line, _style in answer_lines(made_hpo(best=(1.0, 1.0, 1.0), own=(2.0, 2.0, 2.0)))]
    assert "All seeds gave the same figure: give the command its seed as {seed}." in lines
