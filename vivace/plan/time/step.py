"""Seconds of one training step of a transformer, part by part: compute, links, bubble, optimizer.

The parts add up to the whole. Touches nothing; called by the CLI (through ``answer.py``), the search and
``validate``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import log2

from vivace.plan.facts.constants import constants
from vivace.plan.facts.optimizers import OPTIMIZERS
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.jobs.pipeline import Stages, pipeline_seconds, split_layers
from vivace.plan.time.collectives import Group, all_gather_seconds, all_reduce_seconds, point_to_point_seconds
from vivace.plan.time.head import HeadTime, head_time
from vivace.plan.time.layer import LayerTime, layer_time

__all__ = ["FUSED_OPTIMIZER_BYTES", "StepTime", "step_time"]

# One kernel over fp32 weight, gradient and two moments, all read and written (the gradient is cleared).
FUSED_OPTIMIZER_BYTES = 32.0


@dataclass(frozen=True)
class StepTime:
    """Seconds on the critical path; only what is not hidden behind something else."""

    compute: float
    recompute: float
    tensor_links: float
    context_links: float
    launch: float
    """Processor time of launching kernels beyond what the GPU works anyway."""
    pipeline_links: float
    bubble: float
    data_links: float
    shard_links: float
    optimizer: float
    jitter: float
    """Waiting for the slowest node."""
    loader: float = 0.0

    @property
    def total(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self))

    def parts(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class _Micro:
    """One micro-batch on one stage."""

    compute: float
    recompute: float
    tensor: float
    context: float
    launch: float

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.tensor + self.context + self.launch


def _micro(job: TransformerJob, layer: LayerTime, head: HeadTime | None, layers: int) -> _Micro:
    recompute = job.layout.recompute
    forward, backward = layer.seconds(recompute)
    again = {"full": layer.forward, "selective": layer.selective}.get(recompute, 0.0)
    times = 2 if recompute == "full" else 1
    tensor = times * layer.tensor_forward + layer.tensor_backward
    context = times * layer.context_forward + layer.context_backward
    plain = layer.forward + layer.backward
    extra = head.forward + head.backward if head else 0.0
    launch = layers * max(0.0, forward + backward - plain - again - tensor - context)
    launch += layer.late(recompute, layers, layers * (plain + again) + extra)
    return _Micro(layers * plain + extra, layers * again, layers * tensor, layers * context, launch)


def _stage_parameters(job: TransformerJob, stages: Stages) -> float:
    """Parameters of one rank of the most loaded stage."""
    model = job.model
    ends = model.embedding_parameters + model.head_parameters
    if stages.count == 1:
        total = stages.first * model.layer_parameters + ends
    else:
        total = max(
            stages.first * model.layer_parameters + model.embedding_parameters,
            stages.middle * model.layer_parameters,
            stages.last * model.layer_parameters + model.vocab * model.hidden,
        )
    return total / job.layout.tensor


def _pipeline_link(job: TransformerJob) -> float:
    """One activation over one boundary; ranks of a tensor group share it when the sequence is split."""
    layout = job.layout
    if layout.pipeline == 1:
        return 0.0
    size = layout.micro_batch * job.seq_len / layout.context * job.model.hidden * job.precision.activation_bytes
    if layout.sequence_parallel or job.framework.scatters_boundaries:
        size /= layout.tensor
    across = layout.tensor * layout.context * layout.data * 2 > job.machine.gpus_per_node
    return point_to_point_seconds(job.machine, size, across)


def _data_links(job: TransformerJob, parameters: float, backward: float) -> float:
    """Gradient sum over replicas: exposed after the last backward, or hidden in it as far as the framework
    can.
    """
    layout, machine = job.layout, job.machine
    if layout.data * layout.context == 1 or layout.zero == 3:
        return 0.0
    group = Group.of(machine, layout.data * layout.context, layout.tensor)
    reduce_bytes = parameters * job.precision.reduce_bytes
    if layout.zero >= 1:
        seconds = all_gather_seconds(machine, group, reduce_bytes)
        seconds += all_gather_seconds(machine, group, parameters * 2)
    else:
        seconds = all_reduce_seconds(machine, group, reduce_bytes)
    hideable = job.framework.data_overlap * backward
    # The last bucket can only start when its gradients exist.
    exposed = max(min(seconds, 0.06 * seconds + 1e-4), seconds - hideable)
    return exposed + _contention() * (seconds - exposed)


def _shard_links(job: TransformerJob, layer: LayerTime, layers: int) -> float:
    """Fully sharded: gather before forward and backward, scatter gradients after; behind the layer's
    compute.
    """
    layout, machine, precision = job.layout, job.machine, job.precision
    if layout.zero != 3 or layout.shards == 1:
        return 0.0
    group = Group.of(machine, layout.shards, layout.tensor)
    unit = job.model.layer_parameters / layout.tensor
    width = min(2.0, precision.activation_bytes)
    gather = all_gather_seconds(machine, group, unit * width)
    scatter = all_gather_seconds(machine, group, unit * precision.reduce_bytes)
    if layout.shard_size and layout.data > layout.shard_size:
        replicas = Group(layout.data // layout.shard_size, 1)
        scatter += all_reduce_seconds(machine, replicas, unit * precision.reduce_bytes / layout.shard_size)
    forward, backward = layer.seconds(layout.recompute)
    exposed = max(0.0, gather - forward) + max(0.0, gather + scatter - backward)
    exposed += _contention() * (2 * gather + scatter - exposed)
    ends = job.model.embedding_parameters / layout.tensor
    outer = all_gather_seconds(machine, group, ends * width) + all_gather_seconds(
        machine, group, ends * precision.reduce_bytes
    )
    return layers * exposed + gather + outer


def _contention() -> float:
    """Seconds of compute lost per second of communication behind it: both want multiprocessors and memory."""
    return float(constants("links")["contention"])


def _jitter(job: TransformerJob) -> float:
    """Share of the step lost to waiting for the slowest of many nodes, per doubling of the nodes."""
    nodes = max(1.0, job.layout.gpus / job.machine.gpus_per_node)
    return float(constants("links")["jitter_per_doubling"]) * log2(nodes)


def _optimizer(job: TransformerJob, parameters: float) -> float:
    """Streams states, gradients and weights through memory once (or more, where kernels are not fused)."""
    layout = job.layout
    share = parameters / layout.shards if layout.zero >= 1 else parameters
    scale = OPTIMIZERS[job.optimizer].traffic
    moved = job.framework.optimizer_bytes
    if job.fused_optimizer:
        moved = min(moved, FUSED_OPTIMIZER_BYTES)
    return share * scale * _state_width(job) * moved / job.machine.gpu.stream_rate


def _state_width(job: TransformerJob) -> float:
    """Bytes of weight, gradient and two moments over those of fp32: one half in pure bf16."""
    precision = job.precision
    if precision.master_bytes:
        return 1.0  # mixed: the frameworks' own figures
    return (precision.weight_bytes + precision.gradient_bytes + 8.0 * precision.state_scale) / 16.0


def step_time(job: TransformerJob) -> StepTime:
    """The whole step of the slowest rank."""
    layout, count = job.layout, job.micro_batches
    layer, head = layer_time(job), head_time(job)
    stages = split_layers(job.model.layers, layout.pipeline)
    if stages.count == 1:
        kinds = [_micro(job, layer, head, stages.first)]
        order = kinds
    else:
        first, middle = _micro(job, layer, None, stages.first), _micro(job, layer, None, stages.middle)
        last = _micro(job, layer, head, stages.last)
        order = [first] + [middle] * (stages.count - 2) + [last]
    link = 2 * _pipeline_link(job) * layout.virtual_stages
    _, bubble = pipeline_seconds([micro.total + link for micro in order], count, layout)
    slowest = max(order, key=lambda micro: micro.total)
    parameters = _stage_parameters(job, stages)
    backward = layer.seconds(layout.recompute)[1] * stages.middle
    parts = dict(  # noqa: C408
        compute=count * slowest.compute,
        recompute=count * slowest.recompute,
        tensor_links=count * slowest.tensor,
        context_links=count * slowest.context,
        launch=count * slowest.launch,
        pipeline_links=count * link,
        bubble=bubble,
        data_links=_data_links(job, parameters, backward),
        shard_links=count * _shard_links(job, layer, stages.middle),
        optimizer=_optimizer(job, parameters),
    )
    jitter = _jitter(job) * sum(parts.values())
    loader = max(0.0, job.loader_ms * 1e-3 - sum(parts.values()) - jitter)
    return StepTime(**parts, jitter=jitter, loader=loader)
