"""``Race``: entries that ran to a target over seeds, when each run arrived, and what that says."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from vivace.records.base import Part, Record
from vivace.records.machine import Machine

__all__ = ["Amount", "Clock", "CurvePoint", "EntryResult", "Outcome", "Race", "RaceEntry", "RaceRun", "Verdict"]


class Clock(StrEnum):
    TRAINING = "training"
    """As in MLPerf: training and evaluation count; start-up and compilation do not."""
    WALL = "wall"


class Outcome(StrEnum):
    """How a run ended. Only the first arrived."""

    ARRIVED = "arrived"
    LIMIT = "limit"
    ENDED = "ended"
    """By itself, before the target."""
    DIVERGED = "diverged"
    """The metric was NaN or infinite."""
    CRASHED = "crashed"


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


class RaceEntry(Part):
    name: str
    command: tuple[str, ...] = Field(description="without secrets")
    practices: tuple[str, ...] = ()


class CurvePoint(Part):
    """One evaluation. ``time_s`` by the race's clock."""

    time_s: float
    value: float
    steps: int | None = None
    epoch: float | None = None


class RaceRun(Record):
    """One run of one entry with one seed. The figures are those at the target; where it never arrived, at its end."""

    KIND = "race-run"

    entry: str
    seed: int
    outcome: Outcome
    time_s: float = Field(description="by the race's clock")
    wall_s: float = Field(description="since the command was started")
    start_up_s: float | None = Field(None, description="before the first batch or forward")
    compile_s: float = 0.0
    steps: int | None = None
    samples: int | None = None
    joules: float | None = None
    epoch: float | None = None
    best: float | None = Field(None, description="value of the metric")
    metric: str = Field("", description="as the script writes it")
    source: str = ""
    example: str = Field("", description="a line that the metric was read from")
    curve: tuple[CurvePoint, ...] = ()
    evaluations: int = 0
    exit_code: int = 0
    message: str = ""
    folder: str = ""

    @property
    def arrived(self) -> bool:
        return self.outcome is Outcome.ARRIVED


class Amount(Part):
    """Of time, steps, samples or energy. Ends of the interval that the runs do not bound are 0 and infinity."""

    value: float
    low: float
    high: float


class EntryResult(Part):
    """``speedup``: how many times sooner than the baseline; ``fewer_steps``: the same for steps."""

    name: str
    arrived: int
    of: int
    time_s: Amount | None = None
    steps: Amount | None = None
    samples: Amount | None = None
    joules: Amount | None = None
    evaluate_every_s: float | None = Field(None, description="median time between two evaluations")
    speedup: Amount | None = None
    fewer_steps: Amount | None = None
    verdict: Verdict | None = None


class Race(Record):
    KIND = "race"

    target: str
    clock: Clock
    limit: str | None = None
    confirm: int = 1
    seeds: int
    entries: tuple[RaceEntry, ...] = Field(description="the baseline first")
    runs: tuple[RaceRun, ...] = ()
    results: tuple[EntryResult, ...] = ()
    estimator: str = ""
    interval_share: float = Field(0.95, description="of each look's interval; all looks together cover 95 %")
    complete: bool = False
    interrupted: bool = False
    ended_early: bool = Field(False, description="the answer was clear before the last seed")
    notes: tuple[str, ...] = ()
    machine: Machine | None = None
    folder: str = ""
