"""One trial: the command with its values, watched; readings go to the study, and the study may end it.

A trial is one command, also when that is ``torchrun`` or ``srun``: all ranks get the same values, and ending the
command ends all of them.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vivace.errors import UserError
from vivace.hpo.asked import Asked, PrunerName, TakenValue
from vivace.hpo.energy import EnergyMeter
from vivace.hpo.engine import make_pruner
from vivace.hpo.identity import me
from vivace.hpo.leases import LEASE_VARIABLE
from vivace.hpo.ledger import Claimed, Ledger, Part
from vivace.hpo.outcome import Ended, Outcome
from vivace.hpo.patience import patiently
from vivace.hpo.pruning import full_length, is_reported, may_prune
from vivace.hpo.space import Values
from vivace.hpo.template import Template
from vivace.preemption import EXIT_INTERRUPTED
from vivace.race.metrics.readings import Problem, Reading
from vivace.race.watching import EndedBy, MetricSource, Watch, Watched, watch
from vivace.records.base import last_line

__all__ = ["folder_of", "report", "run_trial", "texts_of"]

_LOOK_S = 2.0  # at the study: is its budget used up?
_LOG_TAIL = 4096

Judge = Callable[[int, float], bool]
"""Gets the number and the value of a reading; whether the trial is not worth going on."""


def folder_of(folder: Path, claimed: Claimed) -> Path:
    """Where the trial's output lies; a command finds it as ``{folder}``."""
    part = "trials" if claimed.part is Part.SEARCH else "confirmation"
    return folder / part / f"{claimed.number:04d}"


def texts_of(asked: Asked, values: Values, number: int, seed: int | None, folder: Path) -> dict[str, str]:
    """What stands in the command for each of its placeholders."""
    own = {"trial": str(number), "seed": str(asked.seed + (seed or 0)), "folder": str(folder.absolute())}
    return {**own, **asked.space.texts(values)}


def report(claimed: Claimed, pruner: PrunerName, step: int, value: float) -> bool:
    """Tell the study a reading; whether the trial is not worth going on."""
    claimed.trial.report(value, step)
    length = full_length(claimed.study.get_trials(deepcopy=False))
    if not may_prune(pruner, step, length):
        return False
    claimed.study.pruner = make_pruner(pruner, length)
    return claimed.trial.should_prune()


def run_trial(
    ledger: Ledger, claimed: Claimed, worker: str, stop: threading.Event, judge: Judge | None = None,
    is_over: Callable[[], bool] | None = None,
) -> Outcome:  # fmt: skip
    """``stop``: set from outside, it ends the command, and the trial is given back. ``is_over``: asked from time to
    time whether somebody else has closed the trial."""

    def ask_optuna(step: int, value: float) -> bool:
        return report(claimed, ledger.asked.pruner, step, value)

    return _Running(ledger, claimed, worker, stop, judge or ask_optuna, is_over).to_its_end()


class _Running:
    def __init__(
        self, ledger: Ledger, claimed: Claimed, worker: str, stop: threading.Event, judge: Judge,
        is_over: Callable[[], bool] | None,
    ) -> None:  # fmt: skip
        self.ledger, self.asked, self.claimed, self.stop, self.judge = ledger, ledger.asked, claimed, stop, judge
        self.folder = folder_of(ledger.folder, claimed)
        patiently(self.folder.mkdir, parents=True, exist_ok=True)
        texts = texts_of(self.asked, claimed.values, claimed.number, claimed.seed, self.folder)
        files = Template.read(self.asked.metric_files, self.asked.order, all_used=False)
        seeded = claimed.seed if "seed" not in self.asked.template.holes else None
        self.request = Watch(
            command=self.asked.template.filled(texts),
            folder=self.folder,
            wanted=self.asked.parsed_goal.metric,
            source=MetricSource(self.asked.pattern, files.filled(texts)),
            practices=self.asked.practices,
            seed_offset=seeded,
            environment={LEASE_VARIABLE: worker},
            cwd=Path(self.asked.cwd),
            timeout_s=self.asked.trial_limit_s,
        )
        self.steps = 0
        self.is_over = is_over
        self.out_of_budget = False
        self.looked_at = 0.0

    def to_its_end(self) -> Outcome:
        energy = EnergyMeter.of(self.asked.gpus_per_trial)
        try:
            watched = watch(self.request, self._read, stop=self.stop, on_poll=self._poll)
        except UserError as error:  # the command cannot be started
            return Outcome(Ended.CRASHED, reason=error.message)
        outcome = self._outcome(watched)
        return replace(
            outcome, seconds=watched.seconds, readings=len(watched.readings), exit_code=watched.exit_code,
            energy_j=energy.joules(),
        )  # fmt: skip

    def _read(self, reading: Reading) -> bool:
        """Whether to end the command: it is not worth going on, or no longer ours."""
        self.steps += 1
        if not is_reported(self.steps) or self.claimed.part is Part.CONFIRMATION:
            return False
        return patiently(self._reported, reading.value)

    def _reported(self, value: float) -> bool:
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            return self.judge(self.steps, value)
        except UpdateFinishedTrialError:  # it was silent too long, and another worker has it
            return True

    def _poll(self, seconds: float) -> bool:
        if seconds - self.looked_at < _LOOK_S:
            return False
        self.looked_at = seconds
        if self.is_over is not None and patiently(self.is_over):
            return True
        self.out_of_budget = self.ledger.is_out_of_budget(self.claimed.part)
        return self.out_of_budget

    def _outcome(self, watched: Watched) -> Outcome:
        if watched.ended in (EndedBy.INTERRUPTED, EndedBy.STOPPED):
            return Outcome(Ended.GIVEN_BACK, reason="its worker was stopped")
        if watched.ended is EndedBy.READING:
            return Outcome(Ended.PRUNED)
        if watched.ended is EndedBy.LIMIT:
            if self.out_of_budget:
                return Outcome(Ended.BUDGET, reason="the study's budget was used up")
            return Outcome(Ended.TIMEOUT, reason=f"it took longer than --trial-limit {self.asked.trial_limit_s:g} s")
        if watched.crashed and watched.exit_code == EXIT_INTERRUPTED and me().job is not None:
            return Outcome(Ended.GIVEN_BACK, reason="it saved its state and asked to be started again")
        if watched.crashed:
            return Outcome(Ended.CRASHED, reason=f"exit code {watched.exit_code}: {self._last_words()}")
        if (problem := watched.problem) is not None:
            if problem.problem is not Problem.NOT_A_NUMBER:
                return Outcome(Ended.NO_METRIC, reason=problem.message)
            self._report_divergence()
            return Outcome(Ended.DIVERGED, reason=problem.message)
        values = [reading.value for reading in watched.readings]
        return Outcome(Ended.COMPLETE, value=self._taken(values))

    def _taken(self, values: list[float]) -> float:
        if self.asked.taken is TakenValue.LAST:
            return values[-1]
        return min(values) if self.asked.parsed_goal.direction == "min" else max(values)

    def _report_divergence(self) -> None:
        """As Optuna's samplers know it: a trial that ended with NaN is among the worst."""
        from optuna.exceptions import UpdateFinishedTrialError

        with contextlib.suppress(UpdateFinishedTrialError):
            patiently(self.claimed.trial.report, math.nan, self.steps + 1)

    def _last_words(self) -> str:
        """Of the command: what it wrote last to stderr, or else to stdout."""
        for name in ("stderr.log", "stdout.log"):
            try:
                with open(self.folder / name, "rb") as file:
                    file.seek(max(0, file.seek(0, 2) - _LOG_TAIL))
                    if said := last_line(file.read().decode(errors="replace")):
                        return said
            except OSError:
                continue
        return "it said nothing"
