"""Where trials are run: numbers their folders, keeps the time budget, tells what comes out. Makes no decisions.

The same questions asked again (``--resume``) find the same folders, and what is recorded there is not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.markup import escape

from vivace.measure.command import Progress, Sink
from vivace.records.trial import Outcome, Trial
from vivace.tune.trials import TrialSettings, run_trial

__all__ = ["Bench", "BestSoFar", "Interrupted"]

_SLUG = 60


@dataclass(frozen=True)
class BestSoFar:
    """The fastest set of a search that was not finished. Its gain is not proved."""

    words: tuple[str, ...]
    step_ms: float
    unchanged_step_ms: float


class Interrupted(Exception):
    """Ctrl-C during a trial: everything before it is on disk, in ``folder``."""

    def __init__(self, folder: Path, best: BestSoFar | None = None) -> None:
        super().__init__(str(folder))
        self.folder = folder
        self.best = best


@dataclass
class Bench:
    command: tuple[str, ...]
    folder: Path
    budget_s: float
    settings: TrialSettings
    sink: Sink
    progress: Progress
    say: Callable[[str], None]
    prefix: tuple[str, ...] = ()
    """Put before the command of every trial: ``srun …`` sends each as a job of its own."""

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self.used_s = 0.0

    @property
    def left_s(self) -> float:
        return self.budget_s - self.used_s

    def has_time_for(self, seconds: float) -> bool:
        return self.left_s >= seconds

    def run(
        self, label: str, words: Sequence[str] = (), *, evidence: bool = False, seed: int = 0, norms: bool = False,
        limit_s: float | None = None, steps: int | None = None, same_draws: bool = False, alone: bool = False,
    ) -> Trial:  # fmt: skip
        """One trial. ``limit_s`` ends it, unless it has to wait in a queue first; the budget does not (whoever asks
        looks at it first). ``steps``: instead of the usual number. ``same_draws``: to judge harm, not to time.
        ``alone``: as one process, where trials are split over ranks."""
        number = len(self.trials)
        folder = self.folder / "trials" / f"{number:03d}-{label.replace('/', '-').replace(':', '-')[:_SLUG]}"
        settings = replace(
            self.settings, evidence=evidence, seed_offset=seed, grad_norms=norms, notices_files=number == 0,
            steps=steps or self.settings.steps, same_draws=same_draws, prefix=self.prefix,
            mode="" if alone else self.settings.mode,
            timeout_s=_shorter(self.settings.timeout_s, None if self.prefix else limit_s),
        )  # fmt: skip
        try:
            trial = run_trial(self.command, words, folder, settings, self.sink, self.progress)
        except KeyboardInterrupt:
            raise Interrupted(self.folder) from None
        if trial.outcome is Outcome.INTERRUPTED:
            raise Interrupted(self.folder)
        if number == 0:
            self._warn_about_files(trial)
        self.trials.append(trial)
        self.used_s += trial.seconds
        return trial

    def _warn_about_files(self, trial: Trial) -> None:
        """Once: every other trial does the same."""
        written = trial.measurement.written_files if trial.measurement is not None else None
        if written is not None:
            self.say(f"  [yellow]{escape(written.sentence())}; each trial does so: --in-copy leaves it as it is[/]")


def _shorter(first: float | None, second: float | None) -> float | None:
    known = [limit for limit in (first, second) if limit is not None]
    return min(known) if known else None
