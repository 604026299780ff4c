"""All legal layouts for a number of GPUs, ranked by time with memory as the constraint; and why the runner-up
lost.

Pure: calls the time and memory models, which cache each layer shape, so 4,096 GPUs take seconds. Called by
the CLI, ``budget.py`` and ``scaling.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vivace.errors import UserError
from vivace.plan.facts.frameworks import framework
from vivace.plan.facts.precision import parse_precision
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.jobs.layout import divisors
from vivace.plan.memory.peak import memory
from vivace.plan.run.energy import busy_share, job_power_w
from vivace.plan.time.step import StepTime, step_time
from vivace.records.layout import Layout

__all__ = ["Found", "explain", "legal_layouts", "pareto", "search"]

RECOMPUTES = ("none", "selective", "full")
MICRO_BATCH_MAX = 128


@dataclass(frozen=True)
class Found:
    """A layout with what it costs."""

    job: TransformerJob
    step: StepTime
    memory_gib: float
    power_w: float

    @property
    def seconds(self) -> float:
        return self.step.total

    @property
    def seconds_per_sample(self) -> float:
        return self.step.total / self.job.global_batch

    @property
    def gpu_seconds_per_sample(self) -> float:
        return self.seconds_per_sample * self.job.layout.gpus

    @property
    def joules_per_sample(self) -> float:
        return self.power_w * self.seconds_per_sample


def _micro_batches(share: int) -> list[int]:
    """Every way to cut a rank's share of the batch: a share of 61 is either 61 micro-batches or one."""
    return [size for size in range(1, min(share, MICRO_BATCH_MAX) + 1) if share % size == 0]


def _virtual_stages(layers: int, pipeline: int, micro_batches: int) -> list[int]:
    if pipeline == 1 or micro_batches % pipeline:
        return [1]
    # Where embedding and head count as layers (Llama 3 405B: 126 + 2 over 16 stages), so do they here.
    per_stage = (layers if layers % pipeline == 0 else layers + 2) // pipeline
    return [v for v in divisors(per_stage) if v <= 8][:4]


def legal_layouts(job: TransformerJob, gpus: int) -> Iterator[Layout]:
    """Every layout that divides what it must: heads, layers, nodes, batch."""
    model, per_node = job.model, job.machine.gpus_per_node
    contexts = [1] if job.seq_len < 16_384 else [1, 2, 4, 8]
    for tensor in (t for t in divisors(min(per_node, 8)) if model.heads % t == 0 and gpus % t == 0):
        for pipeline in (p for p in divisors(gpus // tensor) if _stages_fit(model.layers, p)):
            for context in (
                c for c in contexts if (gpus // tensor // pipeline) % c == 0 and job.seq_len % (2 * c) == 0
            ):
                data = gpus // (tensor * pipeline * context)
                if job.global_batch % data:
                    continue
                yield from _variants(job, Layout(data, tensor, pipeline, context))


def _stages_fit(layers: int, pipeline: int) -> bool:
    return pipeline == 1 or (pipeline <= layers and (layers % pipeline == 0 or (layers + 2) % pipeline == 0))


def _recomputes(job: TransformerJob, base: Layout) -> tuple[str, ...]:
    """Megatron's selective recomputation repeats what flash attention repeats anyway: nothing to choose
    there.
    """
    pointless = job.attention == "flash" and base.tensor * base.pipeline > 1
    return ("none", "full") if pointless else RECOMPUTES


def _shardings(job: TransformerJob, base: Layout, stages: list[int]) -> list[tuple[int, int]]:
    """ZeRO stages; full sharding also inside the node only, with replicas across nodes (hybrid)."""
    inside = job.machine.gpus_per_node // (base.tensor * base.context)
    hybrid = 3 in stages and 1 < inside < base.data and base.data % inside == 0
    return [(stage, 0) for stage in stages] + ([(3, inside)] if hybrid else [])


def _variants(job: TransformerJob, base: Layout) -> Iterator[Layout]:
    share = job.global_batch // base.data
    stages = [0] if base.data * base.context == 1 else ([1, 3] if base.pipeline == 1 else [1])
    for zero, shard in _shardings(job, base, stages):
        for micro in _micro_batches(share):
            for recompute in _recomputes(job, base):
                for virtual in _virtual_stages(job.model.layers, base.pipeline, share // micro):
                    yield replace(
                        base,
                        zero=zero,
                        shard_size=shard,
                        micro_batch=micro,
                        recompute=recompute,  # type: ignore[arg-type]
                        virtual_stages=virtual,
                        sequence_parallel=base.tensor > 1,
                        schedule="interleaved" if virtual > 1 else "1f1b",
                    )


def _in_its_framework(job: TransformerJob, layout: Layout) -> TransformerJob:
    """Several GPUs run in Megatron-like code with its own precision recipe, full sharding in FSDP's.

    Replicas too: layouts are compared with each other, not one library's kernels with another's.
    """
    software, precision = job.software, job.precision
    if layout.tensor * layout.pipeline > 1 or (layout.data > 1 and layout.zero != 3 and job.framework.eager):
        software = "megatron-core"
    if precision.cast_bytes:  # autocast was meant as "mixed precision", which each framework does in its own way
        precision = parse_precision(precision.compute, framework(software).recipe(layout.zero))
    return replace(job, layout=layout, software=software, precision=precision)


def evaluate(job: TransformerJob) -> Found:
    step = step_time(job)
    power = job_power_w(job.machine, job.layout.gpus, busy_share(step))
    return Found(job, step, memory(job).total_gib, power)


def search(job: TransformerJob, gpus: int, keep: int = 10, headroom: float = 0.95) -> list[Found]:
    """The fastest layouts that fit in ``headroom`` of the memory, best first. Refuses when none fits."""
    limit = headroom * job.machine.gpu.memory_gib
    found: list[Found] = []
    least = float("inf")
    for layout in legal_layouts(job, gpus):
        trial = _in_its_framework(job, layout)
        need = memory(trial).total_gib
        least = min(least, need)
        if need <= limit:
            found.append(evaluate(trial))
    if not found:
        _refuse(job, gpus, least)
    return sorted(found, key=lambda one: one.seconds)[:keep]


def _refuse(job: TransformerJob, gpus: int, least: float) -> None:
    if least == float("inf"):
        raise UserError(
            f"no layout of {gpus} GPUs divides a global batch of {job.global_batch}",
            hint=f"use --global-batch {max(gpus, round(job.global_batch / gpus) * gpus)}",
        )
    needed = next(
        (g for g in (gpus * 2**k for k in range(1, 8)) if least * gpus / g < 0.9 * job.machine.gpu.memory_gib),
        None,
    )
    raise UserError(
        f"{job.model.name} does not fit on {gpus} {job.machine.gpu.name} in any layout: "
        f"the leanest needs {least:.0f} of {job.machine.gpu.memory_gib:.0f} GiB",
        hint=f"try --gpus {needed}" if needed else "use GPUs with more memory or a smaller model",
    )


def pareto(found: list[Found]) -> list[Found]:
    """Those that no other beats in time, GPU-hours and energy per sample at once."""

    def figures(one: Found) -> tuple[float, float, float]:
        return one.seconds_per_sample, one.gpu_seconds_per_sample, one.joules_per_sample

    def beaten(one: Found) -> bool:
        mine = figures(one)
        return any(
            all(theirs <= own for theirs, own in zip(figures(other), mine, strict=True)) and figures(other) != mine
            for other in found
        )

    return sorted((one for one in found if not beaten(one)), key=lambda one: one.seconds_per_sample)


def explain(winner: Found, loser: Found) -> str:
    """What the loser pays more for, in one sentence."""
    slower = 100.0 * (loser.seconds / winner.seconds - 1.0)
    ours, theirs = winner.step.parts(), loser.step.parts()
    name, extra = max(((part, theirs[part] - ours[part]) for part in ours), key=lambda pair: pair[1])
    if extra <= 0:
        return f"{slower:.1f} % slower"
    words = name.replace("_", " ")
    text = f"{slower:.1f} % slower: {words} takes {theirs[name] * 1e3:.0f} ms instead of {ours[name] * 1e3:.0f}"
    if loser.memory_gib < 0.8 * winner.memory_gib:
        text += f" (but needs {winner.memory_gib - loser.memory_gib:.0f} GiB less)"
    return text
