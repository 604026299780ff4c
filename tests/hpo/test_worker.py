"""A worker takes a study to its end, whatever its trials do."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hpo.conftest import SCRIPTS

from vivace.hpo.asked import Asked, PrunerName, SamplerName, TakenValue, read_asked
from vivace.hpo.budget import Budget, BudgetUnit
from vivace.hpo.ledger import Ledger, Part
from vivace.hpo.outcome import Ended, outcome_of
from vivace.hpo.space import Choice, Real, Whole
from vivace.hpo.summary import summarize, write_csv
from vivace.hpo.worker import work
from vivace.report.hpo_view import answer_lines

MOODS = ("well", "crash", "nan", "hang", "silent")


def _ended(ledger: Ledger) -> list[Ended]:
    return [outcome.ended for trial in ledger.trials(Part.SEARCH) if (outcome := outcome_of(trial))]


def test_a_search_finds_the_valley_and_prunes_what_is_far_from_it(asked: Callable[..., Asked], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, asked(trials=30, defaults={"x": 0.0, "y": 0.0}))
    ledger.begin()
    assert work(tmp_path) == 0
    record = summarize(ledger)
    assert len(record.trials) == 30
    assert record.trials[0].values == {"x": "0.0", "y": "0.0"}  # the user's own values come first
    assert record.trials[0].metric == pytest.approx(170)
    best = min(one.metric for one in record.trials if one.state == "complete" and one.metric is not None)
    assert best < 170
    assert record.complete
    pruned = [one for one in record.trials if one.state == "pruned"]
    assert pruned
    assert all(one.readings < 6 or one.seconds is not None for one in pruned)
    assert f"{SCRIPTS / 'himmelblau.py'} {record.trials[record.best].values['x']} " in record.best_command


def test_everything_that_can_happen_to_a_trial_is_recorded_and_the_study_goes_on(
    asked: Callable[..., Asked], tmp_path: Path
) -> None:
    command = (sys.executable, "-IS", str(SCRIPTS / "moody.py"), "{mood}", "1.5")
    made = asked(
        command=command, reals=(), choices=(Choice("mood", MOODS),), order=("mood",), sampler=SamplerName.GRID,
        trials=5, trial_limit_s=5.0,
    )  # fmt: skip
    ledger = Ledger(tmp_path, made)
    ledger.begin()
    assert work(tmp_path) == 0
    found = {one.values["mood"]: one for one in summarize(ledger).trials}
    assert {mood: one.state for mood, one in found.items()} == {
        "well": "complete", "crash": "crashed", "nan": "diverged", "hang": "timeout", "silent": "no metric",
    }  # fmt: skip
    assert "out of coffee" in found["crash"].reason
    assert found["crash"].exit_code == 1
    assert "--trial-limit 5 s" in found["hang"].reason
    assert "never appeared" in found["silent"].reason
    rows = list(csv.DictReader(write_csv(summarize(ledger), tmp_path / "trials.csv").read_text().splitlines()))
    assert [row["state"] for row in rows if row["mood"] == "crash"] == ["crashed"]


def test_a_command_that_always_fails_stops_the_study_with_its_last_words(
    asked: Callable[..., Asked], tmp_path: Path
) -> None:
    command = (sys.executable, "-IS", str(SCRIPTS / "moody.py"), "crash", "{x}{y}")
    ledger = Ledger(tmp_path, asked(command=command, trials=30, reals=(Real("x", 1, 2), Real("y", 1, 2))))
    work(tmp_path)
    assert len(ledger.trials(Part.SEARCH)) == 5
    assert "the first 5 trials all failed" in str(ledger.failed())


@pytest.mark.parametrize("sampler", list(SamplerName))
def test_every_sampler_asks_within_the_space_and_never_twice(
    asked: Callable[..., Asked], tmp_path: Path, sampler: SamplerName
) -> None:
    """The ledger alone: no command is run. The best value lies in a corner, where samplers come again and again."""
    made = asked(
        sampler=sampler, goal="max score", trials=14, reals=(Real("x", 1e-3, 1.0, log=True),),
        wholes=(Whole("y", 1, 3),),
    )  # fmt: skip
    ledger = Ledger(tmp_path, made)
    ledger.begin()
    asks = []
    while hasattr(claimed := ledger.claim("me"), "values"):
        x, y = float(claimed.values["x"]), int(claimed.values["y"])
        assert 1e-3 <= x <= 1.0
        assert y in (1, 2, 3)
        asks.append((x, y))
        claimed.trial.set_user_attr("vivace:outcome", {"ended": "complete", "value": x * y})
        claimed.study.tell(claimed.trial, x * y)
    assert len(set(asks)) == len(asks) == 14


@pytest.mark.parametrize("sampler", [SamplerName.TPE, SamplerName.RANDOM])
def test_a_finite_space_is_asked_once_each_and_then_is_over(
    asked: Callable[..., Asked], tmp_path: Path, sampler: SamplerName
) -> None:
    made = asked(sampler=sampler, trials=50, reals=(), wholes=(Whole("x", 1, 4),), choices=(Choice("y", ("0", "1")),))
    ledger = Ledger(tmp_path, made)
    asks = set()
    while hasattr(claimed := ledger.claim("me"), "values"):
        asks.add(tuple(claimed.values.items()))
        claimed.study.tell(claimed.trial, 1.0)
    assert len(asks) == 8
    assert len(summarize(ledger).trials) == 8  # draws that came twice are not trials


def test_one_seed_gives_one_search_whatever_the_number_of_workers(asked: Callable[..., Asked], tmp_path: Path) -> None:
    """Random values are a function of the study's seed and the trial's number alone."""
    drawn = []
    for workers in (1, 3):
        (tmp_path / str(workers)).mkdir()
        ledgers = [Ledger(tmp_path / str(workers), asked(sampler=SamplerName.RANDOM, trials=6)) for _ in range(workers)]
        claims = [ledgers[n % workers].claim(f"w{n}") for n in range(6)]
        drawn.append([claimed.values for claimed in claims])  # type: ignore[union-attr]
    assert drawn[0] == drawn[1]


def test_a_pruner_of_every_kind_ends_bad_trials_early(asked: Callable[..., Asked], tmp_path: Path) -> None:
    for pruner in (PrunerName.MEDIAN, PrunerName.ASHA, PrunerName.HYPERBAND):
        folder = tmp_path / pruner
        folder.mkdir()
        ledger = Ledger(folder, asked(pruner=pruner, sampler=SamplerName.RANDOM, trials=14))
        (folder / "study.json").write_text((tmp_path / "study.json").read_text())
        work(folder)
        ended = _ended(ledger)
        assert len(ended) == 14
        assert Ended.PRUNED in ended, pruner
        assert Ended.COMPLETE in ended


def test_a_metric_that_comes_once_is_never_pruned_and_the_best_reading_can_count(
    asked: Callable[..., Asked], tmp_path: Path
) -> None:
    command = (sys.executable, "-IS", str(SCRIPTS / "rosenbrock.py"), "{x}", "{y}")
    ledger = Ledger(tmp_path, asked(command=command, goal='max "final score"', trials=6, taken=TakenValue.BEST))
    work(tmp_path)
    assert _ended(ledger) == [Ended.COMPLETE] * 6
    for trial in ledger.trials(Part.SEARCH):
        x, y = trial.params["x"], trial.params["y"]
        assert trial.value == pytest.approx((1 - x) ** 2 + 100 * (y - x**2) ** 2, rel=1e-6, abs=1e-8)


def test_the_budget_ends_the_search_and_the_trial_that_runs(asked: Callable[..., Asked], tmp_path: Path) -> None:
    command = (sys.executable, "-IS", str(SCRIPTS / "moody.py"), "hang", "{x}{y}")
    space = {"reals": (Real("x", 1, 2),), "choices": (Choice("y", ("", "0")),)}
    ledger = Ledger(tmp_path, asked(command=command, budget=Budget(3.0, BudgetUnit.SECONDS), **space))
    assert work(tmp_path) == 0
    assert _ended(ledger) == [Ended.BUDGET]
    assert ledger.spent().seconds >= 3.0
    assert ledger.is_complete()


def test_the_confirmation_compares_the_best_with_the_own_values_seed_by_seed(
    asked: Callable[..., Asked], tmp_path: Path
) -> None:
    command = (sys.executable, "-IS", str(SCRIPTS / "noisy.py"), "{x}", "{seed}")
    made = asked(
        command=command, reals=(Real("x", -5.0, 5.0),), order=("x",), trials=12, confirm_seeds=4,
        pruner=PrunerName.NONE, sampler=SamplerName.RANDOM, defaults={"x": 4.0},
    )  # fmt: skip
    ledger = Ledger(tmp_path, made)
    ledger.begin()
    assert work(tmp_path) == 0
    record = summarize(ledger, importance=True)
    confirmed = record.confirmation
    assert confirmed is not None
    assert (len(confirmed.best.metric), len(confirmed.baseline.metric)) == (4, 4)
    assert confirmed.compared is not None
    assert confirmed.compared.high < 0
    (verdict, _), *_rest = answer_lines(record)
    assert verdict.startswith("better than your defaults by ")
    assert record.complete
    assert [p.importance for p in record.parameters] == [pytest.approx(1.0)]
    assert read_asked(tmp_path) == made
