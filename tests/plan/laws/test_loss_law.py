"""A law is found again in the losses that it made; too few runs and damaged files are refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.plan.laws.loss_law import LossLaw, TrainedRun, fit, fit_with_ranges
from vivace.plan.laws.runs_file import read_runs

CHINCHILLA = LossLaw(e=1.69, a=406.4, alpha=0.34, b=410.7, beta=0.28)  # Hoffmann et al. 2022, their third approach
SIZES, DATA = (1e6, 4e6, 16e6, 64e6), (20e6, 80e6, 320e6, 1280e6)


def runs_of(law: LossLaw, noise: float = 0.0) -> list[TrainedRun]:
    draw = random.Random(0)
    return [TrainedRun(n, d, law.loss(n, d) * draw.gauss(1.0, noise)) for n in SIZES for d in DATA]


def test_a_published_law_is_found_again():
    found = fit(runs_of(CHINCHILLA))
    assert found.alpha == pytest.approx(CHINCHILLA.alpha, abs=1e-3)
    assert found.beta == pytest.approx(CHINCHILLA.beta, abs=1e-3)
    assert found.loss(1e9, 2e10) == pytest.approx(CHINCHILLA.loss(1e9, 2e10), rel=1e-3)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.5, 3.0), st.floats(0.2, 0.8), st.floats(0.2, 0.8))
def test_any_law_predicts_between_its_runs(e: float, alpha: float, beta: float):
    law = LossLaw(e, 2.0 * SIZES[0] ** alpha, alpha, 2.0 * DATA[0] ** beta, beta)
    found = fit(runs_of(law))
    assert found.loss(8e6, 160e6) == pytest.approx(law.loss(8e6, 160e6), rel=2e-3)


def test_noise_is_seen_in_the_range():
    fitted = fit_with_ranges(runs_of(CHINCHILLA, noise=0.003))
    low, high = fitted.range_of(64e6, 1280e6)
    assert low < fitted.law.loss(64e6, 1280e6) < high
    assert 0.001 < fitted.relative_error < fitted.left_out_error < 0.02
    assert fitted.reach(64e6, 12800e6) == pytest.approx(10.0)


def test_one_run_that_went_wrong_does_not_decide():
    runs = runs_of(CHINCHILLA)
    runs[5] = runs[5]._replace(loss=runs[5].loss * 1.5)
    assert fit(runs).loss(64e6, 1280e6) == pytest.approx(CHINCHILLA.loss(64e6, 1280e6), rel=0.01)


def test_the_best_split_is_the_lowest_loss_at_that_compute():
    params, tokens = CHINCHILLA.best_split(1e21)
    assert 6 * params * tokens == pytest.approx(1e21)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert CHINCHILLA.loss(params * factor, tokens / factor) > CHINCHILLA.loss(params, tokens)


def test_too_few_runs_are_refused():
    with pytest.raises(UserError, match="3 runs are too few"):
        fit_with_ranges(runs_of(CHINCHILLA)[:3])
    with pytest.raises(UserError, match="2 different params"):
        fit_with_ranges([run for run in runs_of(CHINCHILLA) if run.params < 5e6])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("params,tokens\n1,2\n", "no column loss"),
        ("params,tokens,loss\n1,2,x\n", "line 2: loss is 'x', not a number"),
        ("params,tokens,loss\n1,2,3\n1,-2,3\n", "line 3: tokens is -2; it must be above 0"),
        ("params,tokens,loss\n1,2,nan\n", "line 2: loss is nan; it must be above 0"),
        ("params,tokens,loss\n1,2\n", "line 2: loss is None"),
    ],
)
def test_a_damaged_file_is_told_with_its_line(text: str, why: str, tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_runs([path])
    assert why in error.value.message


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(UserError, match="cannot read"):
        read_runs([tmp_path / "none.csv"])
