"""From a job to the ``Plan`` record: memory, time, throughput, MFU, intervals, assumptions.

Calls the models and fills the record; no formula of its own beyond ratios. Called by the CLI and the search.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vivace.plan.images.image_job import VisionJob, vision_memory, vision_step_time
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.machines.cluster import Site
from vivace.plan.memory.peak import Memory, memory, verdict
from vivace.plan.models.flops import model_flops_per_token
from vivace.plan.models.transformer import Transformer
from vivace.plan.run.intervals import interval
from vivace.plan.run.whole_run import RunQuestion, whole_run
from vivace.plan.time.step import StepTime, step_time
from vivace.records.layout import Layout
from vivace.records.plan import Plan
from vivace.records.transformer import TransformerSizes

__all__ = ["hardware_flops_per_step", "plan_transformer", "plan_vision"]

CONVENTION = (
    "MFU counts model FLOPs (6 per multiplied parameter and token, attention in full, no recomputation) "
    "over the dense peak; HFU adds recomputation"
)


def hardware_flops_per_step(job: TransformerJob) -> float:
    """Model FLOPs plus what recomputation repeats: a forward pass of the layers, or of the attention core."""
    model, tokens = job.model, job.tokens_per_step
    total = model_flops_per_token(model, job.seq_len) * tokens
    attention = 4.0 * model.layers * model.attention_width * job.seq_len * tokens * model.attention_share(job.seq_len)
    if job.layout.recompute == "full":
        layers = 2.0 * (model.matmul_parameters - model.output_parameters) * tokens
        return total + layers + attention
    return total + (attention if job.layout.recompute == "selective" and job.attention != "flash" else 0.0)


def sizes_of(model: Transformer) -> TransformerSizes:
    """What the trainer needs to build it."""
    names = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "gated", "biases", "tied", "positions", "causal")
    window = model.window if model.windowed_layers else 0
    return TransformerSizes(
        **{name: getattr(model, name) for name in names}, head_dim=model.head_dim_given, window=window
    )


def _peak(gpu_peak: float, gpus: int, seconds: float) -> float:
    return gpu_peak * gpus * seconds


def plan_transformer(
    job: TransformerJob,
    site: Site,
    question: RunQuestion | None = None,
    assumptions: tuple[str, ...] = (),
    calibrated_with: str | None = None,
) -> Plan:
    step, need = step_time(job), memory(job)
    gpus, machine = job.layout.gpus, job.machine
    flops = model_flops_per_token(job.model, job.seq_len) * job.tokens_per_step
    capacity = _peak(machine.gpu.peak(job.precision.compute), gpus, step.total)
    run = None
    if question is not None:
        tokens = question.tokens or question.samples * job.seq_len
        question = replace(question, tokens=tokens, samples=tokens / job.seq_len)
        run = whole_run(step, job.global_batch, gpus, machine, site.cluster, question)
    return Plan(
        model=job.model.name,
        parameters=job.model.parameters,
        layout=job.layout,
        sizes=sizes_of(job.model),
        global_batch=job.global_batch,
        seq_len=job.seq_len,
        precision=job.precision.name,
        compute=job.precision.compute,
        optimizer=job.optimizer,
        software=job.software,
        attention=job.attention,
        samples_per_s=job.global_batch / step.total,
        tokens_per_s=job.tokens_per_step / step.total,
        tflops_per_gpu=flops / step.total / gpus / 1e12,
        mfu_pct=100.0 * flops / capacity,
        hfu_pct=100.0 * hardware_flops_per_step(job) / capacity,
        run=run,
        assumptions=(*assumptions, *site.assumptions, CONVENTION),
        calibrated_with=calibrated_with,
        **_common(site, gpus, step, need),
    )


def plan_vision(
    job: VisionJob,
    site: Site,
    image_size: int,
    question: RunQuestion | None = None,
    assumptions: tuple[str, ...] = (),
    calibrated_with: str | None = None,
) -> Plan:
    step, need = vision_step_time(job), vision_memory(job)
    batch = job.model.batch * job.gpus * job.accumulation
    flops = job.model.flops * job.gpus * job.accumulation
    capacity = _peak(job.machine.gpu.peak(job.precision.compute), job.gpus, step.total)
    run = whole_run(step, batch, job.gpus, job.machine, site.cluster, question) if question else None
    layout = Layout(data=job.gpus, micro_batch=job.model.batch)
    return Plan(
        model=job.model.name,
        parameters=job.model.parameters,
        layout=layout,
        global_batch=batch,
        image_size=image_size,
        precision=job.precision.name,
        compute=job.precision.compute,
        optimizer=job.optimizer,
        software=job.software,
        samples_per_s=batch / step.total,
        tflops_per_gpu=flops / step.total / job.gpus / 1e12,
        mfu_pct=100.0 * flops / capacity,
        hfu_pct=100.0 * flops / capacity,
        run=run,
        assumptions=(
            *assumptions,
            *site.assumptions,
            "FLOPs are those of the traced products and convolutions",
        ),
        calibrated_with=calibrated_with,
        **_common(site, job.gpus, step, need),
    )


def _common(site: Site, gpus: int, step: StepTime, need: Memory) -> dict[str, Any]:
    machine, needed = site.machine, interval(need.total_gib, "memory")
    return {
        "cluster": machine.name,
        "gpu": machine.gpu.name,
        "gpus": gpus,
        "gpus_per_node": machine.gpus_per_node,
        "nodes": -(-gpus // machine.gpus_per_node),
        "memory_parts_gib": need.parts(),
        "memory_gib": needed,
        "available_gib": machine.gpu.memory_gib,
        "verdict": verdict(needed.estimate, machine.gpu.memory_gib, needed.high),
        "step_parts_ms": {name: value * 1e3 for name, value in step.parts().items()},
        "step_ms": interval(step.total * 1e3, "time"),
    }
