"""The ``Plan`` record: what a training job will need and take, before it runs. Made by ``vivace.plan``, read
by ``launch`` (to write the job) and ``report`` (to draw it).

Figures carry their unit in the name and an interval beside the estimate. GiB is 2^30 bytes.
"""

from __future__ import annotations

from typing import ClassVar

from vivace.records.base import Part, Record
from vivace.records.layout import Layout
from vivace.records.transformer import TransformerSizes

__all__ = ["Plan", "PlanAlternative", "PlanBudget", "PlanChoice", "PlanInterval", "PlanPoint", "PlanRun"]


class PlanInterval(Part):
    """An estimate with its range, from the spread of the published tables (vivace/plan/data/energy.toml)."""

    estimate: float
    low: float
    high: float


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

    layout: Layout
    step_ms: float
    memory_gib: float
    why: str


class PlanPoint(Part):
    """One number of GPUs of a scaling curve, with its best layout."""

    gpus: int
    layout: Layout
    step_ms: float
    samples_per_s: float
    memory_gib: float
    joules_per_sample: float
    efficiency: float | None = None
    """Throughput per GPU over that of the smallest number."""


class Plan(Record):
    KIND: ClassVar[str] = "plan"
    VERSION = 2  # layout: without the number of micro-batches, which follows from the global batch

    model: str
    parameters: int
    sizes: TransformerSizes | None = None
    """None for image models, and in plans of schema 1."""
    cluster: str
    gpu: str
    gpus: int
    gpus_per_node: int
    nodes: int
    layout: Layout
    global_batch: int
    seq_len: int | None = None
    image_size: int | None = None
    precision: str
    compute: str | None = None
    """The type that matrices are multiplied in: bf16, fp16, fp8, tf32 or fp32. None in plans of schema 1."""
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
    layout: Layout
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
