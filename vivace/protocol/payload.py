"""What one process saw, as it tells the command: raw series and facts, one file a rank.

The process builds a ``Payload`` (``measure/inside/payload.py``) and the command reads it (``measure/ranks.py``,
``measure/merge.py``). Every field has a default: to add one, add a line here, fill it there, read it there.
``Facts`` go into the record as they are: their fields are those of the record's own types, which check them.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Callable

from vivace.protocol.codec import decode
from vivace.protocol.ending import Ended
from vivace.protocol.histograms import SeenHistograms
from vivace.protocol.over_time import SeenCompiling, SeenMemorySeries
from vivace.protocol.sampling import SeenSampling
from vivace.protocol.text_enum import TextEnum
from vivace.protocol.version import PROTOCOL, ProtocolError

__all__ = [
    "Clock", "Facts", "Payload", "SeenCeiling", "SeenDevice", "SeenEnergy", "SeenExchanges", "SeenFlops", "SeenMemory",
    "SeenParameters", "SeenProcess", "SeenSupply", "SeenValidation", "Series", "Status",
]  # fmt: skip

Facts = dict[str, Any]


class Status(TextEnum):
    COMPLETE = "complete"
    PARTIAL = "partial"


class Clock(TextEnum):
    """Whose clock the series are on."""

    GPU = "gpu"
    HOST = "host"


@dataclass(frozen=True)
class Series:
    """Milliseconds, one entry per timed step."""

    step: list[float] = field(default_factory=list)
    phases: dict[str, list[float]] = field(default_factory=dict)
    exchanges: dict[str, list[float]] = field(default_factory=dict)
    """``communication`` by the dimension of the layout that the ranks talk over: adds up to it."""

    def mapped(self, change: Callable[[list[float]], list[float]]) -> Series:
        """The same with every list changed."""
        phases, exchanges = (
            {name: change(values) for name, values in parts.items()} for parts in (self.phases, self.exchanges)
        )
        return Series(change(self.step), phases, exchanges)


@dataclass(frozen=True)
class SeenExchanges:
    """Of one rank in the counted step, over one dimension of the layout."""

    calls: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class SeenValidation:
    total_ms: float = 0.0
    batches: int = 0
    runs: int = 0
    with_grad_ms: float = 0.0


@dataclass(frozen=True)
class SeenSupply:
    """The loader's queue at both ends of the window. ``used``: batches in between, None where an epoch ended there."""

    ready_at_start: int | None = None
    ready_at_end: int | None = None
    used: int | None = None
    warmup_cut_short: bool = False
    workers_busy: float | None = None
    """The share of the time in which a worker ran or waited for a core."""


@dataclass(frozen=True)
class SeenFlops:
    """Of the one step in which they were counted, which had ``forwards`` forwards."""

    model: int = 0
    hardware: int = 0
    forward: int = 0
    forwards: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    recurrent: dict[str, int] = field(default_factory=dict)
    uncounted: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SeenCeiling:
    """A matrix product measured on the device, where the catalogue knows no peak."""

    arithmetic: str
    tflops: float | None = None


@dataclass(frozen=True)
class SeenMemory:
    devices: list[Facts] = field(default_factory=list)
    host: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class SeenEnergy:
    joules: float = 0.0
    window_s: float = 0.0
    steps: int = 0
    average_w: float = 0.0
    peak_w: float | None = None
    method: str = ""


@dataclass(frozen=True)
class SeenDevice:
    """A GPU that the process holds tensors on."""

    name: str = ""
    uuid: str = ""
    memory_gib: float = 0.0
    sm_count: int = 0
    compute_capability: str = ""


@dataclass(frozen=True)
class SeenProcess:
    """What the figures were measured on: versions, host, seed, and a hash of the user's own code."""

    vivace: str = ""
    host: str = ""
    os: str = ""
    architecture: str = ""
    logical_cores: int | None = None
    memory_gib: float = 0.0
    python: str = ""
    torch: str = ""
    cuda: str | None = None
    cudnn: str | None = None
    software: dict[str, str | None] = field(default_factory=dict)
    missing_software: list[str] = field(default_factory=list)
    seed: int | None = None
    script: str | None = None
    code_sha256: str | None = None
    threads: int = 1
    cores: str | None = None
    flags: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class SeenParameters:
    total: int = 0
    trainable: int = 0


@dataclass(frozen=True)
class Payload:
    version: int = PROTOCOL
    status: Status = Status.COMPLETE
    ended: Ended | None = None
    """Why it is partial."""
    rank: int = 0
    world: int = 1
    restart: int = 0
    split: bool = False
    """vivace splits one training over the ranks: what a rank sees of its inputs is the whole batch."""
    pid: int = 0
    device: str = "cpu"
    written_at: float = 0.0
    process: SeenProcess = field(default_factory=SeenProcess)
    devices: list[SeenDevice] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    clock: Clock = Clock.HOST
    warmup_steps: int = 0
    total_steps: int = 0
    why_no_steps: str | None = None
    before_window_s: float | None = None
    series: Series = field(default_factory=Series)
    host_series: Series | None = None
    """The same on the host's clock, where ``series`` is on the GPU's."""
    one_off_step: int | None = None
    validation: SeenValidation = field(default_factory=SeenValidation)
    supply: SeenSupply = field(default_factory=SeenSupply)

    samples: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    trajectory: list[float | None] = field(default_factory=list)
    gradient_norms: dict[str, float] = field(default_factory=dict)
    first_steps: Facts | None = None
    backwards: list[int] = field(default_factory=list)
    skipped_steps: int = 0
    optimizers: int = 1
    micro_batches: float | None = None
    input_shapes: int = 0
    input_elements: list[int] = field(default_factory=list)
    inputs: Facts = field(default_factory=dict)
    forwards_per_step: float | None = None
    recompiled: int | None = None
    gradient_syncs: float | None = None

    parameters: SeenParameters = field(default_factory=SeenParameters)
    flops: SeenFlops | None = None
    ceiling: SeenCeiling | None = None
    memory: SeenMemory | None = None
    allocator: Facts | None = None
    energy: SeenEnergy | None = None
    energy_why_not: str | None = None
    exchanges: dict[str, SeenExchanges] = field(default_factory=dict)
    profile: Facts | None = None
    syncs: list[Facts] = field(default_factory=list)
    sampling: SeenSampling | None = None
    histograms: SeenHistograms | None = None
    host_memory_series: SeenMemorySeries | None = None
    gpu_memory_series: SeenMemorySeries | None = None
    compiling: SeenCompiling | None = None
    no_core_ms: float | None = None
    """Per timed step: how long the training's thread could have run and had no core. None: not told by the system."""
    loaders: list[Facts] = field(default_factory=list)
    structure: Facts = field(default_factory=dict)

    def to_text(self) -> str:
        return json.dumps(self, default=_plain)

    @classmethod
    def from_json(cls, value: Any) -> Payload:
        """Raises ``ProtocolError`` for a payload of another version or shape."""
        version = value.get("version") if isinstance(value, dict) else None
        if version != PROTOCOL:
            raise ProtocolError(f"a payload of protocol {version}, and this vivace reads protocol {PROTOCOL}")
        return decode(cls, value)


def _plain(value: Any) -> Any:
    """Our own parts by their fields. Settings are the user's: a number of workers may be numpy's."""
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    with contextlib.suppress(Exception):
        return value.item()
    return str(value)
