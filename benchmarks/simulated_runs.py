"""A machine on which the truth is known: runs with noise of whole runs, drift, and unruly steps, as fast as numpy.

``Session`` stands in for ``vivace.tune.bench.Bench``: the real functions of the proof run on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from vivace.protocol.answers import PracticeAnswer, PracticeState
from vivace.records.finding import Risk
from vivace.records.measurement import Energy, Measurement, Memory, Origin
from vivace.records.trial import Trial
from vivace.tune.attempts import Search

__all__ = ["Machine", "Session", "Steps", "searched"]

_FIRST_STEPS = 20  # the search's first baseline is timed over fewer
_STEPS = 60
_SEARCH_RUNS = 4  # between the baselines of the search and the proof
_STEP_MS = 50.0
_STEP_SPREAD = 0.05  # of one step
_TRIAL_S = 10.0


class Steps(Enum):
    INDEPENDENT = "independent"
    AUTOCORRELATED = "autocorrelated"  # 0.9 from one step to the next
    HEAVY_TAILS = "heavy tails"  # Student's t with 3 degrees of freedom
    OUTLIERS = "outliers"  # 2 % of the steps take five times as long


@dataclass(frozen=True)
class Machine:
    """``run_noise``: standard deviation of a run's log speed; ``drift``: of the log speed over the planned session."""

    run_noise: float
    steps: Steps = Steps.INDEPENDENT
    drift: float = 0.0
    tuned_noise: float = 1.0
    """Of a tuned run, in terms of the baseline's."""


@dataclass
class Session:
    """``gains``: what each word multiplies the speed by. ``pairs``: planned, for the slope of the drift."""

    machine: Machine
    gains: Mapping[str, float]
    pairs: int
    generator: np.random.Generator
    budget_s: float = math.inf
    trials: list[Trial] = field(default_factory=list)
    command: tuple[str, ...] = ("python", "train.py")
    folder: Path = Path("runs/simulated")
    used_s: float = 0.0
    place: int = 0

    @property
    def left_s(self) -> float:
        return self.budget_s - self.used_s

    def has_time_for(self, seconds: float) -> bool:
        return self.left_s >= seconds

    def say(self, text: str) -> None:
        pass

    def run(self, label: str, words: Sequence[str] = (), *, steps: int = _STEPS, **options: Any) -> Trial:
        trial = _TRIAL.model_copy(
            update={
                "name": label,
                "practices": tuple(words),
                "seed_offset": options.get("seed", 0),
                "measurement": self._measured(words, steps),
            }
        )
        self.trials.append(trial)
        self.used_s += _TRIAL_S
        return trial

    def _measured(self, words: Sequence[str], steps: int) -> Measurement:
        noise = self.machine.run_noise * (self.machine.tuned_noise if words else 1.0)
        planned = 1 + _SEARCH_RUNS + 2 * self.pairs
        log_speed = noise * self.generator.standard_normal() + self.machine.drift * self.place / planned
        self.place += 1
        gain = math.prod(self.gains[word] for word in words)
        series = _STEP_MS / gain * math.exp(-log_speed) * _steps(self.machine.steps, steps, self.generator)
        return _MEASUREMENT.model_copy(
            update={
                "samples_per_s": 1e3 / float(series.mean()),
                "series_ms": {"step": series},
                "practices": dict.fromkeys(words, _APPLIED),
            }
        )


def searched(session: Session, words: tuple[str, ...]) -> Search:
    """Two runs of the baseline, and the time of a search that found ``words``."""
    baseline = session.run("baseline", steps=_FIRST_STEPS)
    again = session.run("baseline-again")
    found = Search(session, (Risk.EXACT, Risk.ROUNDING), 2, baseline, again, ())  # type: ignore[arg-type]
    session.place += _SEARCH_RUNS - 1
    found.words, found.best = words, session.run("try-together", words)
    return found


def _steps(kind: Steps, count: int, generator: np.random.Generator) -> np.ndarray:
    """About 1 each."""
    if kind is Steps.OUTLIERS:
        return np.where(generator.random(count) < 0.02, 5.0, 1.0) * (
            1 + _STEP_SPREAD * generator.standard_normal(count)
        )
    if kind is Steps.HEAVY_TAILS:
        return np.maximum(0.3, 1 + _STEP_SPREAD / math.sqrt(3) * generator.standard_t(3, count))
    normal = generator.standard_normal(count)
    if kind is Steps.AUTOCORRELATED:
        return 1 + _STEP_SPREAD * (_AUTOCORRELATION[:count, :count] @ normal)
    return 1 + _STEP_SPREAD * normal


def _first_order(count: int, correlation: float) -> np.ndarray:
    """What makes a stationary first-order autoregressive series of independent numbers: a Cholesky factor."""
    distance = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    return np.linalg.cholesky(correlation**distance)


_APPLIED = PracticeAnswer(PracticeState.APPLIED)
_AUTOCORRELATION = _first_order(_STEPS, 0.9)
_MEASUREMENT = Measurement.model_construct(
    status="complete", steps=_STEPS, warmup_steps=0, memory=Memory(), energy=Energy(measured=False, how="simulated"),
    machine=None, origin=Origin(command=("python", "train.py"), folder="", vivace="", started_at=""),
)  # fmt: skip
_TRIAL = Trial(name="", command=("python", "train.py"), practices=(), outcome="ok", seconds=_TRIAL_S)
