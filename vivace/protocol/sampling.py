"""What sampling the host's stack showed, as a process tells the command: milliseconds per step by line."""

from __future__ import annotations

from dataclasses import dataclass, field

from vivace.protocol.text_enum import TextEnum

__all__ = ["Sampler", "SeenLine", "SeenSampling", "SeenThread", "SeenWorkers"]


class Sampler(TextEnum):
    """How the stack was looked at."""

    TIMER = "timer"
    """A timer interrupts the main thread."""
    THREAD = "thread"
    """A thread looks from beside. Biased: it runs when the training's thread lets it."""


@dataclass(frozen=True)
class SeenLine:
    """Time on one line of the user's code, in one phase of the step, in one kind of work. ``file`` of "": the stack had
    none of the user's. ``first_line`` below ``line``: operators on the lines in between may have spent it.
    ``work``: a family of operators, or "" outside of them."""

    file: str = ""
    line: int = 0
    first_line: int = 0
    code: str = ""
    function: str = ""
    via: str = ""
    near: str = ""
    leaf: str = ""
    leaf_in_torch: bool = False
    ours: bool = False
    """In a function of vivace's own."""
    phase: str = ""
    work: str = ""
    ms: float = 0.0
    waiting_ms: float = 0.0
    """The part in which the thread did not compute: it slept, waited, or had no core."""
    no_core_ms: float = 0.0
    """The part of that in which it could have run and had no core."""
    samples: float = 0.0
    late: bool = False
    """Most of it was charged by samples that something had kept waiting: operators before the line may have."""


@dataclass(frozen=True)
class SeenThread:
    """A line that another thread runs beside the training. ``share``: of the looks that saw it there."""

    file: str = ""
    line: int = 0
    code: str = ""
    leaf: str = ""
    share: float = 0.0


@dataclass(frozen=True)
class SeenWorkers:
    """What the loader's workers did in the same steps: milliseconds per batch by line. ``busy``: the share of the time
    in which a worker makes a batch; the rest it waits for the training to ask for one."""

    workers: int = 0
    batches: int = 0
    batch_ms: float = 0.0
    busy: float = 0.0
    lines: list[SeenLine] = field(default_factory=list)


@dataclass(frozen=True)
class SeenSampling:
    """Per step, over ``steps`` steps of their own. ``own_ms``: what looking itself took, in none of the lines."""

    sampler: Sampler = Sampler.TIMER
    why_no_timer: str | None = None
    period_ms: float = 1.0
    steps: int = 0
    step_ms: float = 0.0
    own_ms: float = 0.0
    gc_ms: float = 0.0
    gc_runs: float = 0.0
    validation_ms: float = 0.0
    samples: int = 0
    traced_steps: int = 0
    """After those, in which lines were traced to correct what samples cannot tell apart."""
    operators_seen: bool = False
    """Whether ``work`` is known: a profiler ran beside a sampler in other steps."""
    lines: list[SeenLine] = field(default_factory=list)
    idle: list[SeenLine] = field(default_factory=list)
    """On a GPU, of the profiled steps: where the host was while the GPU had nothing to do. ``work``: whose fault."""
    others: list[SeenThread] = field(default_factory=list)
    workers: SeenWorkers | None = None
