"""Memory of the most loaded GPU, part by part, at the moment of its peak.

States (parameters, gradients, optimizer), activations, buffers, allocator reserve and CUDA context. The
parts add up to the whole. Touches nothing; called by the CLI, the search and ``validate``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from vivace.plan.facts.constants import constants
from vivace.plan.facts.optimizers import OPTIMIZERS
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.jobs.pipeline import Stages, in_flight, split_layers
from vivace.plan.memory.activations import LayerActivations, layer_activations, logits_bytes
from vivace.plan.memory.allocator import LossMoment, eager_reserve_bytes

__all__ = ["GIB", "Memory", "States", "first_stage_memory", "memory", "state_bytes", "verdict"]

GIB = 2.0**30


@dataclass(frozen=True)
class Memory:
    """GiB (2^30 bytes) of the most loaded rank."""

    parameters_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    logits_gib: float
    recompute_buffer_gib: float
    """The layer that is being recomputed, or whose backward is running."""
    communication_gib: float
    unsharded_gib: float
    """Gathered units of fully sharded training."""
    temporary_gib: float
    reserve_gib: float
    """What the caching allocator holds beyond the tensors."""
    context_gib: float

    @property
    def total_gib(self) -> float:
        """What nvidia-smi shows."""
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def reserved_gib(self) -> float:
        """What torch.cuda.max_memory_reserved shows."""
        return self.total_gib - self.context_gib

    @property
    def allocated_gib(self) -> float:
        return self.reserved_gib - self.reserve_gib

    def parts(self) -> dict[str, float]:
        return {field.name.removesuffix("_gib"): getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class States:
    """Bytes of model states on one rank."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


def state_bytes(job: TransformerJob, rank_parameters: float) -> States:
    """Weights, gradients and optimizer states; ZeRO cuts the optimizer (1), gradients (2), parameters (3)."""
    precision, layout = job.precision, job.layout
    optimizer = precision.master_bytes + OPTIMIZERS[job.optimizer].state_bytes * precision.state_scale
    shards = layout.shards
    return States(
        parameters=rank_parameters * precision.weight_bytes / (shards if layout.zero >= 3 else 1),
        gradients=rank_parameters
        * (precision.gradient_bytes + precision.accumulation_bytes)
        / (shards if layout.zero >= 2 else 1),
        optimizer=rank_parameters * optimizer / (shards if layout.zero >= 1 else 1),
    )


@dataclass(frozen=True)
class _Stage:
    """What one pipeline stage holds."""

    layers: int
    parameters: float
    held: float
    """Micro-batches in flight."""
    head: bool


def _stages(job: TransformerJob) -> list[_Stage]:
    model, layout = job.model, job.layout
    split: Stages = split_layers(model.layers, layout.pipeline)
    count = job.micro_batches
    if split.count == 1:
        total = model.parameters
        return [_Stage(split.first, total / layout.tensor, 1.0, True)]
    embedding, last_matrix = model.embedding_parameters, model.vocab * model.hidden
    first = (split.first * model.layer_parameters + embedding) / layout.tensor
    last = (split.last * model.layer_parameters + last_matrix) / layout.tensor
    held = in_flight(layout, count)
    held_last = held / min(layout.pipeline, count) if layout.virtual_stages == 1 else held / layout.pipeline
    middle = split.middle * model.layer_parameters / layout.tensor
    held_second = held * (layout.pipeline - 1) / layout.pipeline
    return [
        _Stage(split.first, first, held, False),
        _Stage(split.middle, middle, held_second, False),
        _Stage(split.last, last, max(1.0, held_last), True),
    ]


def _layer(job: TransformerJob) -> LayerActivations:
    layout = job.layout
    return layer_activations(
        job.model,
        layout.micro_batch,
        job.seq_len,
        tensor=layout.tensor,
        context=layout.context,
        sequence_parallel=layout.sequence_parallel,
        attention=job.attention,
        activation_bytes=job.precision.activation_bytes,
        # Under autocast norms and the residual stream stay fp32.
        residual_bytes=4.0 if job.precision.cast_bytes else job.precision.activation_bytes,
        fused=job.framework.fused_kernels,
    )


def _kept(job: TransformerJob, layer: LayerActivations) -> float:
    """Bytes per layer until its backward. Operator-level selection in plain PyTorch keeps every other
    product.
    """
    if job.layout.recompute == "selective" and job.attention == "flash" and not job.framework.selects_attention_core:
        return layer.block_input + constants("memory")["selective_share"] * (layer.total - layer.block_input)
    return layer.kept(job.layout.recompute)


def _unsharded(job: TransformerJob) -> float:
    """Fully sharded: two gathered units, the gradients of one and their reduction buffer, and the root."""
    layout, model, precision = job.layout, job.model, job.precision
    if layout.zero < 3 or layout.shards == 1:
        return 0.0
    unit = model.layer_parameters / layout.tensor
    root = (model.embedding_parameters + model.head_parameters) / layout.tensor
    wide = min(2.0, precision.activation_bytes)
    return unit * (2 * wide + wide + precision.reduce_bytes) + root * 2 * wide


def _communication(job: TransformerJob, rank_parameters: float) -> float:
    """Buckets of the gradient sum, and NCCL's own buffers per group."""
    layout, values = job.layout, constants("memory")
    groups = sum(size > 1 for size in (layout.tensor, layout.pipeline, layout.context, layout.data))
    buffers = groups * values["nccl_gib_per_group"] * GIB
    if job.framework.flat_copies and layout.zero >= 1:
        # Flat copies of gradients, and the reduce bucket of 5e8 elements that exists whatever the model's
        # size.
        # With fp32 accumulation the wide copy is already counted among the gradients.
        copy = values["deepspeed_copy_bytes"] / (2 if job.precision.accumulation_bytes else 1)
        buffers += rank_parameters * copy + 5e8 * 2
    elif layout.data > 1 and layout.zero == 0 and job.framework.gradient_buckets:
        buffers += rank_parameters * job.precision.gradient_bytes * values["ddp_bucket_share"]
    return buffers


def _moment(job: TransformerJob, stage: _Stage, layer: LayerActivations, moment: str) -> Memory:
    """The parts on one stage at the ``loss``, at the first layer of ``backward``, or at its ``end``."""
    values, layout = constants("memory"), job.layout
    states = state_bytes(job, stage.parameters)
    gradients = states.gradients if _gradients_persist(job) or moment == "end" else 0.0
    tokens = layout.micro_batch * job.seq_len / layout.context
    activations = stage.layers * _kept(job, layer) * stage.held
    if moment == "end" and stage.held <= 1:
        activations = _kept(job, layer)  # the later layers' are gone
    activations += tokens * job.model.hidden * job.precision.activation_bytes * (2 if stage.head else 1)
    once = layer.total * (1.0 if layout.recompute == "full" else values["backward_share"])
    working = once if moment != "loss" else 0.0
    all_logits = _logits(job, tokens) if stage.head else 0.0
    logits = all_logits if moment == "loss" else 0.0
    temporary = _optimizer_temporary(job, stage) if moment == "end" else 0.0
    cast = stage.parameters * job.precision.cast_bytes if layout.zero < 3 and moment != "end" else 0.0
    unsharded = _unsharded(job)
    if moment == "loss" and stage.head and _is_plain_eager(job):
        reserve = _eager_reserve(job, states, activations, tokens)
    else:
        dynamic = activations + working + logits + unsharded + temporary
        # The allocator keeps the blocks of the loss when the backward pass starts, and can reuse only part of
        # them.
        reserve = values["fragmentation"] * min(once, all_logits)
        reserve += 0.0 if _is_plain_eager(job) else values["reserve_share"] * dynamic
    reserve += values["reserve_gib"] * GIB
    return Memory(
        parameters_gib=(states.parameters + cast) / GIB,
        gradients_gib=gradients / GIB,
        optimizer_gib=states.optimizer / GIB,
        activations_gib=activations / GIB,
        logits_gib=logits / GIB,
        recompute_buffer_gib=working / GIB,
        communication_gib=_communication(job, stage.parameters) / GIB,
        unsharded_gib=unsharded / GIB,
        temporary_gib=temporary / GIB,
        reserve_gib=reserve / GIB,
        context_gib=job.machine.gpu.context_gib,
    )


def _gradients_persist(job: TransformerJob) -> bool:
    """Kept from step to step, or over micro-batches; plain PyTorch frees them after every step."""
    return job.framework.keeps_gradients or job.micro_batches > 1 or job.layout.zero >= 2


def _is_plain_eager(job: TransformerJob) -> bool:
    """Eager PyTorch without gathered units, whose blocks ``allocator.py`` counts."""
    return job.framework.eager and job.layout.zero < 3


def _eager_reserve(job: TransformerJob, states: States, activations: float, tokens: float) -> float:
    model, layout, precision = job.model, job.layout, job.precision
    narrow = precision.activation_bytes if precision.activation_bytes < 4 else 0.0
    return eager_reserve_bytes(
        LossMoment(
            freed_gradients=0.0 if _gradients_persist(job) else states.gradients,
            largest_gradient=model.vocab * model.hidden / layout.tensor * precision.gradient_bytes,
            activations=activations,
            logits_16=logits_bytes(model, tokens, layout.tensor, narrow, 0.0),
        )
    )


def _logits(job: TransformerJob, tokens: float) -> float:
    wide = job.framework.logit_fp32_bytes
    return logits_bytes(job.model, tokens, job.layout.tensor, job.precision.activation_bytes, wide)


def _optimizer_temporary(job: TransformerJob, stage: _Stage) -> float:
    """Adam over lists of tensors (PyTorch's default, not fused) makes one fp32 temporary per parameter."""
    fused = job.fused_optimizer or job.framework.fused_kernels
    if fused:
        return 0.0
    shards = job.layout.shards if job.layout.zero >= 1 else 1
    return stage.parameters * OPTIMIZERS[job.optimizer].temporary_bytes / shards


def _stage_peak(job: TransformerJob, stage: _Stage, layer: LayerActivations) -> Memory:
    """The moment with most tensors; its reserve reaches up to the moment with most reserved memory."""
    moments = [_moment(job, stage, layer, when) for when in ("loss", "backward", "end")]
    fullest = max(moments, key=lambda moment: moment.allocated_gib)
    highest = max(moment.reserved_gib for moment in moments)
    return replace(fullest, reserve_gib=highest - fullest.allocated_gib)


def first_stage_memory(job: TransformerJob) -> Memory:
    """The peak of the first pipeline stage: what rank 0 prints, and what most published figures are."""
    return _stage_peak(job, _stages(job)[0], _layer(job))


def memory(job: TransformerJob) -> Memory:
    """The peak: the worst stage at its worst moment."""
    layer = _layer(job)
    return max((_stage_peak(job, stage, layer) for stage in _stages(job)), key=lambda peak: peak.total_gib)


def verdict(needed_gib: float, available_gib: float, at_most_gib: float | None = None) -> str:
    """``fits``, ``tight`` (more than 92 %, or the interval's upper end ``at_most_gib`` is more than there is:
    allocation retries and a longer sequence can break it) or ``does not fit``.
    """
    if needed_gib > available_gib:
        return "does not fit"
    at_most_gib = needed_gib if at_most_gib is None else at_most_gib
    return "tight" if needed_gib > 0.92 * available_gib or at_most_gib > available_gib else "fits"
