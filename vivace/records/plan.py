"""The ``Plan`` record: what a training job will need and take, before it runs. Made by ``vivace.plan``, read
by ``launch`` (to write the job) and ``report`` (to draw it).

Figures carry their unit in the name and an interval beside the estimate. GiB is 2^30 bytes.
"""

from __future__ import annotations

from typing import ClassVar

from vivace.records.base import Part, Record

__all__ = ["Plan", "PlanAlternative", "PlanBudget", "PlanChoice", "PlanInterval", "PlanLayout", "PlanPoint", "PlanRun"]


class PlanInterval(Part):
    """An estimate with its range, from the spread of the published tables (vivace/plan/data/energy.toml)."""

    estimate: float
    low: float
    high: float


class PlanLayout(Part):
    """Degrees of parallelism; their product is the number of GPUs."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    virtual_stages: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    shard_size: int = 0
    micro_batch: int = 1
    micro_batches: int = 1
    recompute: str = "none"
    schedule: str = "1f1b"

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context


class PlanRun(Part):
    """The whole training: time, energy, cost, and the jobs that a QoS cuts it in."""

    tokens: float | None = None
    samples: float
    steps: int
    days: PlanInterval
    gpu_hours: PlanInterval
    energy_mwh: PlanInterval
    co2_t: float
    cost: float | None = None
    currency: str = "EUR"
    qos: str | None = None
    pieces: int | None = None
    hours_per_piece: float | None = None


class PlanAlternative(Part):
    """A layout that lost, and why."""

    layout: PlanLayout
    step_ms: float
    memory_gib: float
    why: str


class PlanPoint(Part):
    """One number of GPUs of a scaling curve, with its best layout."""

    gpus: int
    layout: PlanLayout
    step_ms: float
    samples_per_s: float
    memory_gib: float
    joules_per_sample: float
    efficiency: float | None = None
    """Throughput per GPU over that of the smallest number."""


class Plan(Record):
    KIND: ClassVar[str] = "plan"

    model: str
    parameters: int
    cluster: str
    gpu: str
    gpus: int
    gpus_per_node: int
    nodes: int
    layout: PlanLayout
    global_batch: int
    seq_len: int | None = None
    image_size: int | None = None
    precision: str
    optimizer: str
    software: str
    attention: str | None = None
    memory_parts_gib: dict[str, float]
    memory_gib: PlanInterval
    """Reserved memory and context of the most loaded GPU: what nvidia-smi shows."""
    available_gib: float
    verdict: str
    """``fits``, ``tight`` or ``does not fit``."""
    step_parts_ms: dict[str, float]
    step_ms: PlanInterval
    samples_per_s: float
    tokens_per_s: float | None = None
    tflops_per_gpu: float
    """Model FLOPs per second and GPU, without recomputation, attention counted in full."""
    mfu_pct: float
    hfu_pct: float
    run: PlanRun | None = None
    advice: tuple[str, ...] = ()
    alternatives: tuple[PlanAlternative, ...] = ()
    assumptions: tuple[str, ...] = ()
    calibrated_with: str | None = None


class PlanChoice(PlanRun):
    """A whole training with the GPUs and the layout that were chosen for it."""

    model: str
    parameters: int
    gpus: int
    layout: PlanLayout
    global_batch: int
    step_ms: float
    memory_gib: float


class PlanBudget(Record):
    """What can be trained within limits: the answer of ``vivace plan budget``."""

    KIND: ClassVar[str] = "plan_budget"

    model: str
    parameters: int
    tokens: float
    gpus: int
    """At most."""
    limits: dict[str, float]
    """Those that were given: ``days``, ``gpu_hours``, ``energy_mwh``, ``cost``."""
    within: bool
    """Some number of GPUs trains the model on all tokens within the limits. Otherwise ``shortest`` and
    ``cheapest`` go beyond them."""
    shortest: PlanChoice
    cheapest: PlanChoice
    """Fewest GPU-hours."""
    all_gpus: PlanChoice | None = None
    """The best with exactly ``gpus``; None when no layout of so many can run the job."""
    why_not_all: str | None = None
    tokens_within: float | None = None
    """Tokens that the model can be trained on within the limits, when it is not all of them ..."""
    tokens_within_gpus: int | None = None
    """... and on how many GPUs."""
    largest: PlanChoice | None = None
    """The largest compute-optimal model within the limits, if any were given."""
    largest_sizes: dict[str, int] | None = None
