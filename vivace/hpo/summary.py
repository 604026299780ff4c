"""From the study's storage to its record (``Hpo``), at any moment: for the live table, the page, and ``--json``."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.files import write_text_atomically
from vivace.hpo.asked import UNBOUNDED_TRIALS, Asked
from vivace.hpo.confirming import confirmation_of
from vivace.hpo.ledger import Ledger, Part
from vivace.hpo.outcome import RETRY_OF, Ended, counts, outcome_of, values_of
from vivace.hpo.space import Choice
from vivace.hpo.storage import JOURNAL
from vivace.launch.practised import practised
from vivace.records.hpo import Hpo, HpoParameter, HpoTrial
from vivace.records.privacy import safe_command

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

__all__ = ["CSV", "RECORD", "best_command", "summarize", "write_csv"]

RECORD = "hpo.json"
CSV = "trials.csv"
_FEWEST_FOR_IMPORTANCE = 10


def summarize(ledger: Ledger, ended: str = "", importance: bool = False, notes: Sequence[str] = ()) -> Hpo:
    """``importance`` takes a moment, and is left out of the live table."""
    asked, trials = ledger.asked, ledger.trials(Part.SEARCH)
    best, spent = ledger.best(), ledger.spent()
    weights = _importances(ledger) if importance else {}
    return Hpo(
        name=asked.name,
        command=safe_command(asked.command),
        metric=asked.parsed_goal.metric.text,
        direction=asked.parsed_goal.direction.value,
        parameters=tuple(
            HpoParameter(name=p.name, range=str(p), kind=_kind(p), importance=weights.get(p.name))
            for p in asked.space.parameters
        ),
        engine=asked.engine,
        sampler=asked.sampler,
        pruner=asked.pruner,
        seed=asked.seed,
        workers=asked.workers,
        practices=asked.practices,
        asked_trials=asked.trials if asked.trials < UNBOUNDED_TRIALS else None,
        budget=str(asked.budget) if asked.budget is not None else None,
        budget_used=spent.of(asked.budget.unit) / asked.budget.amount if asked.budget is not None else None,
        trials=tuple(_trial(asked, trial, trials) for trial in trials if counts(trial)),
        given_back=sum(_is_given_back(trial) for part in Part for trial in ledger.trials(part)),
        best=best.number if best is not None else None,
        best_command=best_command(asked, best) if best is not None else "",
        confirmation=confirmation_of(asked, best, ledger.trials(Part.CONFIRMATION)) if best is not None else None,
        complete=ledger.is_complete(),
        ended=ended,
        wall_s=spent.seconds,
        trial_s=spent.trial_seconds,
        gpu_s=spent.gpu_seconds,
        energy_j=spent.energy_j,
        storage=asked.storage or str(ledger.folder / JOURNAL),
        notes=tuple(notes),
    )


def best_command(asked: Asked, best: FrozenTrial) -> str:
    """Ready to copy, with the practices that its trials had; ``{folder}`` is a folder named best."""
    texts = {"trial": "best", "seed": str(asked.seed), "folder": "best", **asked.space.texts(best.params)}
    return shlex.join(practised(safe_command(asked.template.filled(texts)), asked.practices))


def write_csv(record: Hpo, path: Path) -> Path:
    """One line for each trial."""
    text = io.StringIO()
    names = [parameter.name for parameter in record.parameters]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", *names, record.metric, "readings", "seconds", "attempts", "energy_j", "reason"])
    for one in record.trials:
        writer.writerow([
            one.number, one.state, *(one.values.get(name, "") for name in names),
            "" if one.metric is None else repr(one.metric), one.readings,
            "" if one.seconds is None else f"{one.seconds:.3f}", one.attempts,
            "" if one.energy_j is None else f"{one.energy_j:.1f}", " ".join(one.reason.split())[:300],
        ])  # fmt: skip
    return write_text_atomically(path, text.getvalue())


def _kind(parameter: object) -> str:
    return "choice" if isinstance(parameter, Choice) else "log" if getattr(parameter, "log", False) else "linear"


def _trial(asked: Asked, trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> HpoTrial:
    outcome = outcome_of(trial)
    last = trial.intermediate_values[trial.last_step] if trial.last_step is not None else None
    metric = trial.value if trial.value is not None else last
    started = trial.datetime_start
    return HpoTrial(
        number=trial.number,
        state=outcome.ended if outcome is not None else trial.state.name.lower(),
        values=asked.space.texts({name: value for name, value in values_of(trial).items() if name in asked.order}),
        metric=metric if metric is None or math.isfinite(metric) else None,
        readings=outcome.readings if outcome is not None else len(trial.intermediate_values),
        seconds=outcome.seconds if outcome is not None else None,
        started_at=started.timestamp() if started is not None else None,
        exit_code=outcome.exit_code if outcome is not None else None,
        energy_j=outcome.energy_j if outcome is not None else None,
        attempts=_attempts(trial, trials),
        reason=outcome.reason if outcome is not None else "",
    )


def _attempts(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> int:
    """One more for each earlier trial in its place."""
    count = 1
    while (earlier := trial.user_attrs.get(RETRY_OF)) is not None:
        trial, count = trials[earlier], count + 1
    return count


def _is_given_back(trial: FrozenTrial) -> bool:
    outcome = outcome_of(trial)
    return outcome is not None and outcome.ended is Ended.GIVEN_BACK


def _importances(ledger: Ledger) -> dict[str, float]:
    """Optuna's (PED-ANOVA); none for so few trials that they would say nothing."""
    from optuna.importance import get_param_importances
    from optuna.trial import TrialState

    done = [trial for trial in ledger.trials(Part.SEARCH) if trial.state is TrialState.COMPLETE]
    if len(done) < _FEWEST_FOR_IMPORTANCE or len({trial.value for trial in done}) < 2:
        return {}
    try:
        return dict(get_param_importances(ledger.search, params=list(ledger.asked.order)))
    except (ValueError, RuntimeError):  # a parameter that had one value in all trials
        return {}
