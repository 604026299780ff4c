"""``Proof``: what tune found, by how much, and why it does no harm."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, model_validator

from vivace.records import older
from vivace.records.base import Part, Record
from vivace.records.equality import Equality
from vivace.records.finding import Finding, Risk
from vivace.records.machine import Machine
from vivace.records.measurement import Spread
from vivace.records.scale import SplitFacts
from vivace.records.trial import Outcome

__all__ = [
    "Conclusion", "Gain", "Harm", "HarmOutcome", "HarmTest", "HarmTestKind", "HarmVerdict", "Interval", "Payback",
    "Proof", "Rejected", "Rejection", "Scaled", "Side", "Varied",
]  # fmt: skip


_UNSTEADY = 1.3


class HarmVerdict(StrEnum):
    SAME_LOSSES = "same losses"
    INSIDE = "inside the band"
    OUTSIDE = "outside the band"
    NOT_COMPARABLE = "not comparable"


class HarmTestKind(StrEnum):
    FIRST_STEP = "first step"
    """Gradients and updates of the first steps, where weights and batch are the same."""
    PAIRED_LOSSES = "paired losses"
    """Losses with the same seed, as long as the two runs go together."""
    SEED_BAND = "seed band"
    """Losses and gradient norms against those of other seeds."""
    LONG_LOOK = "long look"
    """The losses of one pair of long runs."""


class HarmOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class Rejection(StrEnum):
    """Why a practice is not part of the set that is recommended."""

    NOT_TRIED = "not tried"
    """There was not enough time."""
    EXCLUDED = "excluded"
    """By a practice that was kept."""
    DID_NOT_RUN = "did not run"
    NOT_APPLICABLE = "not applicable"
    NO_GAIN = "no gain"
    UNJUDGED = "could not be judged"
    """Its trial did not seem faster, but the machine was too unsteady to say so."""
    HARMFUL = "harmful"
    NOT_PROVED = "not proved"
    """It was in the set, and the set did not get through the proof."""


class Conclusion(StrEnum):
    """What a tune comes to, as a whole."""

    FASTER = "faster"
    NOT_ENOUGH_TIME = "not enough time"
    """Nothing was tried."""
    HARMFUL = "harmful"
    FAILED = "failed"
    """A run of the proof did not get through."""
    UNJUDGED = "could not be judged"
    """The machine was too unsteady for some or all of what was tried."""
    NOT_PROVED = "not proved"
    NO_GAIN = "no gain"


class Interval(Part):
    """A ratio with its 95 % confidence interval."""

    median: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)

    @property
    def vague(self) -> bool:
        """The median of such an interval is no figure to quote."""
        return self.high > 2 * self.low


class Gain(Part):
    """One practice of the winning set: what it brings alone, and as the last one added."""

    practice: str = Field(description="the word for `--with`")
    risk: Risk
    title: str = ""
    alone: Interval | None = None
    last: Interval | None = None
    by_hand: str = ""


class Rejected(Part):
    """A practice that was tried and left out, or not tried, and why."""

    practice: str
    reason: Rejection | None = Field(None, description="the kind of reason; None in records of an earlier vivace")
    why: str
    ratio: float | None = Field(None, description="speed against the best set without it, where it was measured")
    noise: float | None = Field(None, description="factor that chance alone can make of that ratio; of single runs")
    outcome: Outcome | None = Field(None, description="of its trial, where that did not run")

    @model_validator(mode="before")
    @classmethod
    def _read_an_older_one(cls, fields: Any) -> Any:
        return older.rejected(fields)


class HarmTest(Part):
    """One of the tests that a verdict on harm rests on, and over how much it was taken."""

    kind: HarmTestKind
    outcome: HarmOutcome
    steps: int = 0
    pairs: int = 0
    of: tuple[str, ...] | None = Field(None, description="the practices that were looked at; None: the whole set")
    says: str = ""

    @property
    def title(self) -> str:
        return self.kind.value if self.of is None else f"{self.kind} of {', '.join(self.of)}"


class Harm(Part):
    """The tuned runs against the baseline's own: gradients of the first steps, losses of the same seed and of others.

    "inside the band": no test failed; "outside the band": one did. ``moved`` is how far a tuned run's losses lie from
    the baseline's with the same seed (root mean square over the steps); ``band`` is how far two runs of the baseline
    with different seeds lie from each other.
    """

    verdict: HarmVerdict
    moved: float | None = None
    band: float | None = None
    norm_moved: float | None = None
    norm_band: float | None = None
    norm_size: float | None = None
    steps: int = 0
    rounds: int = 0
    seeds: int = 0  # pairs of runs with the same seed whose losses were compared: the rounds', and one of the search
    says: str = ""
    tests: tuple[HarmTest, ...] = ()  # none in records of before 0.1
    cannot_see: str = ""

    @property
    def seen_steps(self) -> int:
        """How far into the training the longest of the tests looked."""
        return max((test.steps for test in self.tests if test.outcome is not HarmOutcome.NOT_RUN), default=self.steps)


class Payback(Part):
    """Compilation and the like cost time once; each step then wins some back."""

    extra_s: float
    saved_ms_per_step: float
    steps: int | None = Field(description="after so many steps the run is ahead; None: never")


class Varied(Part):
    """The speed of the unchanged job over all of its runs in a tune: it should be the same every time."""

    low: float = Field(gt=0)
    high: float = Field(gt=0)
    runs: int = Field(ge=1)
    unit: Literal["samples", "steps"] = "samples"

    @property
    def is_unsteady(self) -> bool:
        """Something else takes this machine's time. On an H200 the ratios of 12 scripts are 1.00 to 1.18, on two
        cores that others use too 32 of 42 are above 1.3 (public_scripts_trials.csv, aa.csv)."""
        return self.high >= _UNSTEADY * self.low


class Side(Part):
    """The baseline or the tuned job, over its paired runs."""

    samples_per_s: float | None = None
    step_ms: Spread | None = None
    phases_ms: dict[str, float] = Field(default_factory=dict, description="mean per step")
    device_memory_gib: float | None = None
    host_memory_gib: float | None = None
    joules_per_sample: float | None = None
    mfu: float | None = None
    losses: tuple[tuple[float | None, ...], ...] = Field((), description="one trajectory a round")


class Scaled(Part):
    """Of ``tune --ranks``: the ranks beside one process. The practices of the proof are compared with the ranks as they
    are; ``with_practices`` multiplies the two."""

    ranks: int
    mode: str
    over_one: Interval | None = Field(None, description="the ranks as they are over one process; None: no pair was run")
    with_practices: Interval | None = None
    efficiency: float | None = Field(None, description="that speedup over the number of ranks")
    pairs: int = 0
    equality: Equality
    one: Side | None = None
    split: Side | None = None
    facts: SplitFacts | None = None


class Proof(Record):
    KIND = "proof"

    command: tuple[str, ...]
    speedup: Interval
    practices: tuple[Gain, ...]
    trials: tuple[str, ...] = Field(description="folders of the trials it rests on")
    losses_in_band: bool | None = None
    harm: Harm | None = None
    before: Side | None = None
    after: Side | None = None
    payback: Payback | None = None
    rejected: tuple[Rejected, ...] = ()
    proposed: tuple[Finding, ...] = Field((), description="worth something, but for a person to decide or edit")
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    repeats_s: float = Field(0.0, description="of these, for repeats of the best set between trials, to see the noise")
    unchanged: Varied | None = Field(None, description="how steady the unchanged job ran; None in older records")
    machine: Machine | None = None
    run_with: str = Field("", description="the command that trains with the winning set")
    scaled: Scaled | None = Field(None, description="of `tune --ranks`: every trial was split over ranks")
    ended: str | None = Field(None, description="the run of the proof that did not get through, and how")
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> int:
        """Of runs, that the speedup rests on."""
        return len(self.after.losses) if self.after is not None else 0

    @property
    def nothing_tried(self) -> bool:
        """For want of time: then nothing is known, good or bad."""
        if self.practices or not self.rejected:
            return False
        return all(rejected.reason is Rejection.NOT_TRIED for rejected in self.rejected)

    @property
    def conclusion(self) -> Conclusion:
        if self.practices:
            return Conclusion.FASTER
        if self.nothing_tried:
            return Conclusion.NOT_ENOUGH_TIME
        if self.harm is not None and self.harm.verdict is HarmVerdict.OUTSIDE:
            return Conclusion.HARMFUL
        if self.ended is not None:
            return Conclusion.FAILED
        reasons = {rejected.reason for rejected in self.rejected}
        unsteady = self.unchanged is not None and self.unchanged.is_unsteady
        if Rejection.NOT_PROVED in reasons:
            return Conclusion.UNJUDGED if unsteady else Conclusion.NOT_PROVED
        return Conclusion.UNJUDGED if Rejection.UNJUDGED in reasons else Conclusion.NO_GAIN
