"""``Measurement``: where the time, memory and energy of a training command go. Written by measure, read by all."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from vivace.protocol.ending import Ending
from vivace.records import older
from vivace.records.base import Part, Record
from vivace.records.first_steps import FirstSteps
from vivace.records.histograms import Histograms
from vivace.records.ledger import Ledger
from vivace.records.machine import Machine
from vivace.records.older import Answer
from vivace.records.over_time import OverTime
from vivace.records.scale import SplitFacts
from vivace.records.structure import Spot, Structure

__all__ = [
    "AllocatorUse", "Contradiction", "ContradictionKind", "Copies", "DeviceMemory", "Energy", "Flops", "HostMemory",
    "Inputs", "Kernel", "Loader", "Measurement", "Memory", "Mfu", "Origin", "Profile", "Rank", "RuntimeCall",
    "Spread", "StepsVary", "Sync", "Validation", "inputs_vary",
]  # fmt: skip


ContradictionKind = Literal["counted-16-ran-32", "counted-32-ran-16", "faster-than-peak"]


class Contradiction(Part):
    """The kernels that ran cannot be those of the arithmetic that was counted: no MFU is given then."""

    kind: ContradictionKind
    says: str
    evidence: dict[str, float] = Field(default_factory=dict)


class Spread(Part):
    """``mean``: all of the time over all of the steps. Throughput and ratios come from it, and means of parts add up to
    the mean of the whole. ``median``: a typical step, with its spread."""

    model_config = ConfigDict(allow_inf_nan=False)

    median: float
    p10: float
    p90: float
    mean: float


class StepsVary(Part):
    """The timed steps vary so much that their median says little. Means are right for what was timed."""

    shortest_ms: float
    longest_ms: float
    p10_ms: float
    p90_ms: float
    median_ms: float
    mean_ms: float
    phase: str | None = Field(None, description="the part of a step that varies most")


class Origin(Part):
    """What was run, so that a claim can be replayed. Nothing that may be a secret is kept."""

    command: tuple[str, ...]
    folder: str
    script: str | None = None
    code_sha256: str | None = None
    seed: int | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    vivace: str
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    flags: dict[str, bool | str | int | None] = Field(default_factory=dict)
    started_at: str = Field(description="UTC, ISO 8601")


class Flops(Part):
    """Floating-point operations of one step of one rank, counted from the operators (attention in full)."""

    model: int = Field(description="forward and backward")
    hardware: int = Field(description="with what activation checkpointing computes again")
    by_type: dict[str, int] = Field(description="arithmetic (fp32, tf32, bf16, …) → FLOPs")
    recurrent: dict[str, int] = Field({}, description="the part of it inside RNN, LSTM and GRU layers")
    uncounted: tuple[str, ...] = ()


class Mfu(Part):
    """Model FLOP utilisation: model FLOPs per second over a peak, and what peak that is."""

    value: float
    hfu: float = Field(description="the same with the hardware's FLOPs")
    peak_tflops: float
    arithmetic: str
    against: str = Field(description="'H200 SXM dense peak (catalogue)' or 'matmul measured on this device'")


class DeviceMemory(Part):
    allocated_peak_gib: float
    reserved_peak_gib: float
    total_gib: float
    alloc_retries: int
    out_of_memory_errors: int = 0


class AllocatorUse(Part):
    """How often the GPU's caching allocator went to the driver in the timed steps. None: torch does not count it."""

    steps: int
    device_allocs: int | None = Field(None, description="calls of cudaMalloc, or pages mapped")
    device_frees: int | None = None
    segments: int | None = Field(None, description="new ones")
    retries: int | None = Field(None, description="no room: the cache was emptied, which waits for the GPU")


class Inputs(Part):
    """How the shapes that go into the model vary over the timed steps."""

    repeats: tuple[int, ...] = Field((), description="how often each shape came, the most frequent first")
    new: int = Field(0, description="steps whose shape had not come before, since the first step")
    elements: float | None = Field(None, description="that go into the model per step, mean")
    squares: float | None = Field(None, description="mean of their squares")


class HostMemory(Part):
    rss_gib: float
    rss_peak_gib: float
    children_rss_gib: float
    children: int


class Memory(Part):
    """GPU peaks of the most loaded device, and the hosts' resident memory over all ranks with their workers."""

    device: DeviceMemory | None = None
    host: HostMemory | None = None


class Energy(Part):
    """GPU energy over all ranks. ``measured`` false: the figures are absent and ``how`` says why."""

    measured: bool
    how: str
    joules_per_step: float | None = Field(None, allow_inf_nan=False)
    joules_per_sample: float | None = Field(None, allow_inf_nan=False)
    average_w: float | None = None
    peak_w: float | None = None
    window_s: float | None = None
    gpus: int = 0


class Kernel(Part):
    name: str
    ms_per_step: float
    calls_per_step: float
    share: float
    family: str | None = None


class Copies(Part):
    kind: str
    per_step: float
    ms_per_step: float
    mib_per_step: float


class RuntimeCall(Part):
    """Calls of the CUDA runtime or driver on the host, all threads together: cudaMalloc, cudaStreamSynchronize, …"""

    name: str
    per_step: float
    ms_per_step: float


class Exchange(Part):
    """Messages between ranks over one dimension of the layout; figures of one rank, the mean of all.

    On a CPU times are of the timed steps, and a message counts when the host waits for it. On a GPU they are the
    profiler's, of NCCL's kernels.
    """

    dimension: str = Field(description="the axis of the device mesh (data, shard, tensor, pipeline, …), or which ranks")
    ranks: int | None = Field(None, description="that talk to each other; the profiler tells")
    calls_per_step: float | None = None
    mib_per_step: float | None = Field(None, description="of whole tensors: what is gathered, or reduced")
    ms_per_step: float | None = Field(None, description="with what computing hides; on a GPU only")
    exposed_ms_per_step: float


class Profile(Part):
    """A short profiler window after the timed one (it slows the steps down: only shares are comparable)."""

    steps: int
    busy_share: float | None = None
    idle_ms_per_step: float | None = None
    longest_gap_ms: float | None = None
    kernels_per_step: float | None = None
    tensor_core_share: float | None = None
    communication_ms_per_step: float | None = None
    communication_exposed_ms_per_step: float | None = None
    exchanges: tuple[Exchange, ...] = ()
    copies: tuple[Copies, ...] = ()
    host_ms_per_step: float | None = Field(None, description="what the host needs to launch a step, waits left out")
    host_waits_ms_per_step: float | None = Field(None, description="the host in calls that wait for the GPU")
    idle_during_ms: dict[str, float] = Field(
        default_factory=dict, description="time without a kernel, per step, by what the host did meanwhile"
    )
    roles_ms: dict[str, float] = Field(default_factory=dict, description="kernel time per step by what it is for")
    runtime: tuple[RuntimeCall, ...] = Field((), description="the costliest calls of the host, by their time")
    products_ms: dict[str, float] = Field(
        default_factory=dict, description="time of the products per step by the width that kernel names tell: 16, 32"
    )
    top: tuple[Kernel, ...] = ()


_FILES_SHOWN = 6


class Sync(Part):
    """A line of the loop that makes the host wait for the GPU."""

    file: str
    line: int
    code: str
    via: str | None = Field(None, description="the library line in between, where the loop is a framework's")
    per_step: float


class Loader(Part):
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    persistent_workers: bool
    prefetch_factor: int | None
    iterable: bool
    epoch_batches: int | None = Field(None, description="in a whole epoch, where that is known")
    default_collate: bool | None = Field(None, description="whether torch's own function makes batches of samples")
    batch_mib: float | None = Field(None, description="host tensors of the first batch that was looked at")
    where: Spot | None = None
    made: int = Field(1, description="loaders that this line made with these settings over the same data")
    epochs: int = Field(0, description="begun since the first backward")
    batches: int = Field(0, description="fetched since the first backward")
    wait_ms: float = Field(0.0, description="for all those batches but the first ones of epochs, on the host's clock")
    epoch_start_ms: float = Field(0.0, description="for all those epochs, until their first batch is there")
    unpinned: int = Field(0, description="done by workers and waiting to be pinned at a fetch, added up over batches")


class Validation(Part):
    """Time outside training steps, in eval mode or without gradients, within the measured window."""

    total_ms: float = 0.0
    batches: int = 0
    runs: int = 0
    with_grad_ms: float = 0.0
    """The part whose forwards kept a graph that no backward used."""


class Rank(Part):
    rank: int
    host: str
    device: str
    cores: str | None = Field(None, description="logical cores that it may run on: '0-3,8'")
    step_ms: Spread
    phases_ms: dict[str, Spread]
    samples_per_s: float | None = Field(None, allow_inf_nan=False)
    memory: DeviceMemory | None = None
    host_peak_gib: float | None = Field(None, description="resident memory of the process, without its workers")


class WrittenFiles(Part):
    """Files in the folder of the command that it changed; paths relative to it, the first twenty of each kind."""

    overwritten: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    count: int = Field(0, description="all of them, named or not")
    complete: bool = Field(True, description="whether all files were looked at: a large folder has too many")

    def sentence(self) -> str:
        """What was done to which files; the user's own come first."""
        named = 0
        parts = []
        for verb, paths in (("overwrote", self.overwritten), ("deleted", self.deleted), ("made", self.made)):
            shown = paths[: max(0, _FILES_SHOWN - named)]
            named += len(shown)
            if shown:
                parts.append(f"{verb} {', '.join(shown)}")
        more = f" and changed {self.count - named} more files" if self.count > named else ""
        return f"in its folder the command {'; '.join(parts)}{more}"


class Measurement(Record):
    """Figures of rank 0 unless said otherwise; samples, energy and memory are over all ranks."""

    KIND = "measurement"
    VERSION = 2  # practices: answers instead of sentences

    status: Literal["complete", "partial"]
    reason: str | None = Field(None, description="why it is partial")
    ending: Ending | None = Field(None, description="the kind of that reason")
    missing_ranks: tuple[int, ...] = Field((), description="ranks of the job that left no figures; no rates then")
    steps: int
    warmup_steps: int
    samples_per_s: float | None = Field(
        None, allow_inf_nan=False, description="all ranks; total samples over total time, not of medians"
    )
    tokens_per_s: float | None = Field(None, allow_inf_nan=False)
    batch_size: int | None = Field(None, description="samples per optimizer step and rank")
    global_batch_size: int | None = Field(None, description="samples per optimizer step over all ranks")
    split: bool = Field(False, description="vivace splits one training over the ranks: batch_size is the whole batch")
    scale: SplitFacts | None = Field(None, description="what was split over the ranks, and what they exchanged")
    micro_batches: float | None = Field(None, description="backward passes per optimizer step")
    optimizers: int = Field(1, description="0: parameters are updated by hand, or in hooks of the backward pass")
    skipped_steps: int = Field(0, description="steps that a GradScaler left out")
    step_ms: Spread | None = None
    steps_vary: StepsVary | None = Field(None, description="where the median of the steps says little")
    phases_ms: dict[str, Spread] = Field(default_factory=dict)
    host_phases_ms: dict[str, Spread] = Field(
        default_factory=dict,
        description="the same marks on the host's clock, when the main figures are the GPU's",
    )
    clock: Literal["gpu", "host"] = "host"
    series_ms: dict[str, tuple[float, ...]] = Field(default_factory=dict, description="'step' and phases, per step")
    losses: tuple[float | None, ...] = Field((), description="per step, mean over ranks")
    trajectory: tuple[float | None, ...] = Field((), description="the loss of every step since the first")
    gradient_norms: dict[int, float] = Field(default_factory=dict, description="by number of the step, not timed ones")
    first_steps: FirstSteps | None = Field(None, description="only where gradient norms were asked for")
    backwards: tuple[int, ...] = Field((), description="backward passes of each of the first steps")
    before_window_s: float | None = Field(None, description="from the import of torch to the first timed step")
    input_shapes: int | None = Field(None, description="different shapes that went into the model")
    inputs: Inputs = Inputs()
    recompiled: int | None = Field(None, description="frames that torch.compile compiled in the timed steps")
    gradient_syncs: float | None = Field(None, description="gradient exchanges of DDP per optimizer step")
    imbalance_ms: float | None = Field(None, description="per step, slowest rank's computing over the ranks' mean")
    waiting_for_ranks_ms: float | None = Field(
        None, description="per step, the part of communication in which a rank waits for slower ones; mean of the ranks"
    )
    exchanges: tuple[Exchange, ...] = Field(
        (), description="communication by dimension of the layout: exposed times add up to phases_ms.communication "
        "(on a GPU: to profile.communication_exposed_ms_per_step)"
    )  # fmt: skip
    input_imbalance: float | None = Field(None, description="share, largest rank's inputs over the ranks' mean")
    structure: Structure = Field(default_factory=Structure)
    practices: dict[str, Answer] = Field(default_factory=dict, description="asked by `--with` → what became of it")
    parameters: int | None = None
    trainable_parameters: int | None = None
    flops: Flops | None = None
    contradictions: tuple[Contradiction, ...] = ()
    mfu: float | None = None
    mfu_detail: Mfu | None = None
    memory: Memory
    allocator: AllocatorUse | None = None
    energy: Energy
    validation: Validation = Validation()
    profile: Profile | None = None
    over_time: OverTime | None = Field(None, description="what changes over the steps; None: nothing")
    histograms: Histograms | None = Field(None, description="magnitudes of activations and gradients; None: not asked")
    ledger: Ledger | None = Field(None, description="where every millisecond of a step went; None: not sampled")
    syncs: tuple[Sync, ...] = ()
    loaders: tuple[Loader, ...] = ()
    ready_at_start: int | None = Field(None, description="batches ready for the training when the window opened")
    ready_at_end: int | None = Field(None, description="the same at its end; None: no workers, or an epoch's end")
    workers_busy: float | None = Field(
        None, description="share of the time in which a loader worker ran or waited for a core; None: not known"
    )
    ranks: tuple[Rank, ...] = ()
    devices: tuple[str, ...] = ()
    origin: Origin
    machine: Machine
    written_files: WrittenFiles | None = Field(None, description="in the command's folder; None: none, or not looked")
    notes: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read_an_older_one(cls, fields: Any) -> Any:
        return older.measurement(fields)

    @property
    def ranks_per_host(self) -> int:
        """They share the cores of a host; of several hosts, the one with the most ranks."""
        hosts = [rank.host for rank in self.ranks]
        return max((hosts.count(host) for host in set(hosts)), default=1)

    @property
    def inputs_vary(self) -> bool:
        return inputs_vary(self.input_shapes)


def inputs_vary(shapes: int | None) -> bool:
    """With equal inputs there are two shapes at most: the whole batch, and a smaller last one."""
    return (shapes or 1) > 2
