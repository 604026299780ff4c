"""``Ledger``: where every millisecond of a step went. Rows that add up to it, each with a cause and a place."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from vivace.records.base import Part

__all__ = ["CAUSES", "Cause", "Ledger", "Line", "OtherThread", "Place", "Row", "Sampling", "Workers"]


class Cause(StrEnum):
    """Whose time it is."""

    OPERATORS = "operators"
    """On a CPU: inside operators of torch, by family."""
    LIMIT = "limit"
    """On a GPU: what the same work takes at the hardware's limit."""
    BEYOND = "beyond"
    """On a GPU: what kernels take beyond that."""
    KERNELS = "kernels"
    """On a GPU: kernels whose limit is not counted."""
    HOST = "host"
    """A line of Python."""
    LOGGING = "logging"
    SAVING = "saving"
    DISPATCH = "dispatch"
    """Between operators: modules that are called, the autograd engine, the optimizer's Python. Launch-bound."""
    DATA = "data"
    RANKS = "ranks"
    """Waiting for slower ranks."""
    EXCHANGE = "exchange"
    COPIES = "copies"
    ALLOCATOR = "allocator"
    LATENCY = "latency"
    """On a GPU: a kernel that was launched in time, and had not begun."""
    GC = "gc"
    """Runs of the garbage collector that nobody asked for."""
    NO_CORE = "no core"
    """The training's thread could run and had no core."""
    OWN = "own"
    """What vivace's own hooks take."""
    UNEXPLAINED = "unexplained"


CAUSES: dict[Cause, str] = {
    Cause.OPERATORS: "inside operators",
    Cause.LIMIT: "at the GPU's limit",
    Cause.BEYOND: "beyond the GPU's limit",
    Cause.KERNELS: "GPU at work, limit not counted",
    Cause.HOST: "a line of Python",
    Cause.LOGGING: "logging",
    Cause.SAVING: "saving",
    Cause.DISPATCH: "between operators",
    Cause.DATA: "waiting for data",
    Cause.RANKS: "waiting for slower ranks",
    Cause.EXCHANGE: "exchange between ranks",
    Cause.COPIES: "copies",
    Cause.ALLOCATOR: "memory allocator",
    Cause.LATENCY: "the GPU's own gaps",
    Cause.GC: "garbage collection",
    Cause.NO_CORE: "no core was free",
    Cause.OWN: "vivace itself",
    Cause.UNEXPLAINED: "not explained",
}


class Place(Part):
    """``first_line`` below ``line``: operators on the lines in between may have spent the time instead."""

    file: str
    line: int
    first_line: int
    code: str = ""


class Row(Part):
    cause: Cause
    name: str = Field(description="the family of operators, or the same cause in words")
    ms: float = Field(ge=0, description="per step")
    waiting_ms: float = Field(
        0.0, ge=0, description="the part in which the thread did not compute: a sleep, a lock, IO"
    )
    where: Place | None = None
    via: str = Field("", description="the first call of a library beneath that line")
    to_do: str = Field("", description="the change by hand")


class Line(Part):
    """A line of the user's own code with all its time, whatever it is spent on."""

    file: str
    line: int
    first_line: int
    code: str = ""
    function: str = ""
    ms: float = Field(ge=0, description="per step")
    by_cause_ms: dict[Cause, float] = Field(default_factory=dict)
    via: str = ""


class Workers(Part):
    """What the loader's workers did in the sampled steps: the lines of data set, transforms and collate function."""

    workers: int
    batches: int
    batch_ms: float = Field(description="that a worker takes to make one")
    busy: float = Field(description="share of the time in which it makes one; the rest it waits to be asked")
    lines: tuple[Row, ...] = Field((), description="per batch; cause data")


class OtherThread(Part):
    """A line that another thread of the process runs, and in which share of the looks."""

    file: str
    line: int
    code: str = ""
    share: float


class Sampling(Part):
    """The steps in which the stack was sampled; they are not the timed ones."""

    sampler: Literal["timer", "thread"]
    why_no_timer: str | None = None
    steps: int
    samples: int
    period_ms: float
    step_ms: float = Field(description="mean of those steps, without what sampling took")
    own_ms: float = Field(description="what sampling took per step")


class Ledger(Part):
    """``rows`` and ``unexplained_ms`` add up to ``step_ms``. ``outside``: beside the step, spread over the steps."""

    step_ms: float = Field(gt=0, description="mean of the timed steps")
    rows: tuple[Row, ...]
    unexplained_ms: float = Field(ge=0)
    why_unexplained: str | None = None
    outside: tuple[Row, ...] = ()
    lines: tuple[Line, ...] = ()
    workers: Workers | None = None
    threads: tuple[OtherThread, ...] = ()
    sampling: Sampling | None = None

    @property
    def explained(self) -> float:
        """A share of the step."""
        return 1 - self.unexplained_ms / self.step_ms

    def of(self, *causes: Cause) -> float:
        """Milliseconds per step."""
        return sum(row.ms for row in self.rows if row.cause in causes)
