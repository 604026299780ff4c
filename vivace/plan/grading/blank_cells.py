"""What a blank cell of a table is taken for: recomputation, sharding and micro-batch, by rules that look at memory.

Each rule adds a note. Nothing here looks at a measured figure. Called by ``language_rows.py``.
"""

from __future__ import annotations

from dataclasses import replace

from vivace.plan.jobs.job import TransformerJob
from vivace.plan.memory.peak import memory
from vivace.records.layout import Recompute

__all__ = ["blank_micro_batch", "blank_recompute", "blank_sharding"]


def blank_recompute(row: dict[str, str], job: TransformerJob, notes: list[str]) -> Recompute:
    """Blank act_ckpt: what the FLOP definition says; Megatron before flash attention checkpointed by
    default.
    """
    words = (row.get("tflops_def", "") + row.get("notes", "")).lower()
    if "incl. recompute" in words or "96*" in words or "recomput" in words:
        notes.append("act_ckpt blank: the FLOP definition counts recomputation")
        return "full"
    if job.attention != "flash" and job.framework.recomputes_by_default:
        notes.append("act_ckpt blank: full, the default of Megatron scripts without flash attention")
        return "full"
    need = memory(job).total_gib
    # The row did run: only a plain misfit, beyond the memory model's own error, means recomputation.
    if need > 1.1 * job.machine.gpu.memory_gib:
        notes.append("act_ckpt blank: full, because the job would not fit without")
        return "full"
    notes.append("act_ckpt blank: none, since the job fits without")
    return "none"


def blank_sharding(job: TransformerJob, notes: list[str]) -> TransformerJob:
    """Blank dp_kind: replicated states if they can be held at all, else the lowest ZeRO stage that can."""
    lean = replace(job, layout=replace(job.layout, recompute="full"))
    stages = [stage for stage in (job.layout.zero, 1, 3) if stage >= job.layout.zero]
    for stage in stages:
        if memory(replace(lean, layout=replace(lean.layout, zero=stage))).total_gib < job.machine.gpu.memory_gib:
            if stage != job.layout.zero:
                notes.append(f"dp_kind blank: ZeRO {stage}, because replicated states would not fit")
            return replace(job, layout=replace(job.layout, zero=stage))
    return job


def blank_micro_batch(job: TransformerJob, notes: list[str]) -> TransformerJob:
    """The largest power of two that fits and leaves enough micro-batches to fill the pipeline."""
    share = job.global_batch // job.layout.data
    best = 1
    candidate = 2
    while candidate <= min(share, 16):
        trial = replace(job, layout=replace(job.layout, micro_batch=candidate))
        fits = memory(trial).total_gib < 0.9 * job.machine.gpu.memory_gib
        filled = share // candidate >= 4 * job.layout.pipeline or job.layout.pipeline == 1
        if share % candidate == 0 and fits and filled:
            best = candidate
        candidate *= 2
    notes.append(f"micro_batch blank: {best}")
    return replace(job, layout=replace(job.layout, micro_batch=best))
