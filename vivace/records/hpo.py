"""``Hpo``: a hyper-parameter search: what was searched, every trial, the best one, and how sure that is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Part, Record

__all__ = ["Arm", "Compared", "Confirmation", "Hpo", "HpoParameter", "HpoTrial"]


class HpoParameter(Part):
    """``range``: as it was written. ``importance``: share of the spread of the metric, None where it is not known."""

    name: str
    range: str
    kind: Literal["log", "linear", "choice"]
    importance: float | None = None


class HpoTrial(Part):
    number: int
    state: str = Field(description="complete, pruned, diverged, crashed, timeout, no metric, budget, running, waiting")
    values: dict[str, str] = Field(description="as the command got them")
    metric: float | None = Field(None, description="of a trial that did not come to its end: the last reading")
    readings: int = 0
    seconds: float | None = None
    started_at: float | None = Field(None, description="seconds since 1970")
    exit_code: int | None = None
    energy_j: float | None = None
    attempts: int = Field(1, description="how often it was begun; each worker that was killed adds one")
    reason: str = ""


class Compared(Part):
    """A mean over pairs of runs, with its 95 % interval (Student's t)."""

    mean: float
    low: float
    high: float
    pairs: int


class Arm(Part):
    """One configuration over seeds."""

    values: dict[str, str]
    metric: tuple[float, ...] = Field(description="one for each seed whose run ended well")


class Confirmation(Part):
    """The best configuration against the user's own, on seeds that the search did not use."""

    seeds: int
    best: Arm
    baseline: Arm
    baseline_is_middle: bool = Field(description="no --default was given: it is the middle of the space")
    best_seen: float = Field(description="what the search saw of the best trial, which flatters it")
    best_mean: Compared | None = Field(None, description="of the best configuration alone, over the seeds")
    compared: Compared | None = Field(None, description="best minus baseline, seed by seed")
    failed_runs: int = 0


class Hpo(Record):
    KIND = "hpo"

    name: str
    command: tuple[str, ...] = Field(description="with its placeholders")
    metric: str
    direction: Literal["min", "max"]
    parameters: tuple[HpoParameter, ...]
    engine: str = Field("optuna", description="what ran the trials: optuna or ray")
    sampler: str
    pruner: str
    seed: int
    workers: int
    practices: tuple[str, ...] = ()
    asked_trials: int | None = Field(None, description="None: as many as the budget allows")
    budget: str | None = None
    budget_used: float | None = Field(None, description="share of the budget; the confirmation is part of it")
    trials: tuple[HpoTrial, ...]
    given_back: int = Field(0, description="trials of workers that were killed or stopped; each was queued again")
    best: int | None = Field(None, description="number of the best trial that came to its end")
    best_command: str = ""
    confirmation: Confirmation | None = None
    complete: bool = False
    ended: str = Field("", description="why the study is not complete, or stopped early")
    wall_s: float = Field(0.0, description="of the clock while at least one command ran")
    trial_s: float = Field(0.0, description="of all commands together")
    gpu_s: float = 0.0
    energy_j: float | None = None
    storage: str = ""
    notes: tuple[str, ...] = ()
