"""Time and memory of a traced model under data parallelism: convolutional networks, vision transformers, your
own.

Each operation on its roof, as for transformers. Touches torch only through ``trace.py``. Called by the CLI
and validate.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from vivace.errors import UserError
from vivace.plan.facts.constants import constants
from vivace.plan.facts.frameworks import Framework, framework
from vivace.plan.facts.optimizers import OPTIMIZERS
from vivace.plan.facts.precision import Precision
from vivace.plan.images.names import image_model
from vivace.plan.images.trace import Operation, TracedModel, load_function, trace_model
from vivace.plan.machines.machine import Gpu, Machine
from vivace.plan.memory.peak import GIB, Memory
from vivace.plan.time.collectives import Group, all_reduce_seconds
from vivace.plan.time.gemm import gemm_seconds
from vivace.plan.time.step import StepTime

__all__ = ["VisionJob", "image_model_maker", "traced", "vision_memory", "vision_step_time"]


@dataclass(frozen=True)
class VisionJob:
    model: TracedModel
    """Traced at the batch of one GPU."""
    machine: Machine
    gpus: int
    precision: Precision
    software: str = "torch"
    optimizer: str = "sgd"
    channels_last: bool = True
    accumulation: int = 1
    loader_ms: float = 0.0
    compute_scale: float = 1.0

    @property
    def framework(self) -> Framework:
        """What ``software`` does."""
        return framework(self.software)


def image_model_maker(name: str, image_size: int) -> Callable[[], Any] | None:
    """Our own reference models first, then timm, then torchvision, whichever is installed."""
    if ":" in name and ".py" in name:
        return load_function(name)
    made = image_model(name, image_size)
    if made is not None:
        return made
    if importlib.util.find_spec("timm") is not None:
        import timm  # type: ignore[import-not-found,unused-ignore]

        if timm.is_model(name):
            return lambda: timm.create_model(name)
    if importlib.util.find_spec("torchvision") is not None:
        from torchvision import models

        if name in models.list_models():
            return lambda: models.get_model(name)
    return None


@lru_cache(maxsize=256)
def traced(name: str, batch: int, image_size: int, element_bytes: int) -> TracedModel:
    """The model at one batch size, or a ``UserError`` when nobody knows the name."""
    maker = image_model_maker(name, image_size)
    if maker is None:
        raise UserError(
            f"no image model is called {name!r}", hint="install timm or torchvision, or give file.py:function"
        )
    return trace_model(maker, name, batch, image_size, element_bytes)


def _seconds(gpu: Gpu, operation: Operation, job: VisionJob) -> float:
    values = constants("vision")
    gap = constants("gemm")["gap_us"] * 1e-6
    moved = operation.moved_bytes / gpu.stream_rate
    if operation.kind in ("gemm", "conv"):
        dtype = job.precision.compute
        is_conv = operation.kind == "conv"
        seconds = gemm_seconds(gpu, dtype, operation.m, operation.n, operation.k, operation.batch, convolution=is_conv)
        if is_conv:
            seconds /= gpu.conv_share(dtype)
            if not job.channels_last and dtype in ("fp16", "bf16"):
                moved *= values["channels_first_passes"]  # to channels-last and back around every convolution
        return max(seconds, moved) + gap
    share = {"depthwise": values["depthwise_passes"], "norm": values["norm_passes"]}.get(operation.kind, 1.0)
    if operation.kind != "depthwise":
        share *= values["fused_share"] if job.framework.compiles else 1.0
    return moved * share + gap


def _launched(job: VisionJob) -> int:
    """Operations that the processor launches: those traced, and autocast's two casts per weight (the weight
    forward, its gradient backward), which the trace in 16 bit does not have.
    """
    weights = sum(op.kind in ("gemm", "conv", "depthwise") and not op.backward for op in job.model.operations)
    return len(job.model.operations) + (2 * weights if job.precision.cast_bytes else 0)


def vision_step_time(job: VisionJob) -> StepTime:
    gpu, behaviour = job.machine.gpu, job.framework
    forward = sum(_seconds(gpu, op, job) for op in job.model.operations if not op.backward) * job.compute_scale
    backward = sum(_seconds(gpu, op, job) for op in job.model.operations if op.backward) * job.compute_scale
    compute = job.accumulation * (forward + backward)
    launches = behaviour.launch_us * 1e-6 * _launched(job) * job.accumulation * job.compute_scale
    group = Group.of(job.machine, job.gpus)
    reduce = all_reduce_seconds(job.machine, group, job.model.parameters * job.precision.reduce_bytes)
    exposed = max(0.1 * reduce, reduce - behaviour.data_overlap * backward) if reduce else 0.0
    exposed += float(constants("links")["contention"]) * (reduce - exposed)
    moved = behaviour.optimizer_bytes * OPTIMIZERS[job.optimizer].traffic
    optimizer = job.model.parameters * moved / gpu.stream_rate
    busy = compute + exposed + optimizer
    return StepTime(
        compute=compute,
        recompute=0.0,
        tensor_links=0.0,
        context_links=0.0,
        launch=max(0.0, launches - compute),
        pipeline_links=0.0,
        bubble=0.0,
        data_links=exposed,
        shard_links=0.0,
        optimizer=optimizer,
        jitter=0.0,
        loader=max(0.0, job.loader_ms * 1e-3 - busy),
    )


def vision_memory(job: VisionJob) -> Memory:
    """The fuller of two moments: the start of the backward pass (activations as autograd saved them, a
    workspace for convolutions, no gradients yet) and its end (all gradients and the optimizer's temporaries, no
    activations).
    """
    values, own, count, precision = constants("memory"), constants("vision"), job.model.parameters, job.precision
    held = job.model.saved_bytes + job.model.input_bytes
    gradients = count * precision.gradient_bytes
    # DistributedDataParallel's buckets and accumulated gradients exist all the time.
    persistent = job.gpus > 1 or job.accumulation > 1
    temporary = 0.0 if job.framework.fused_kernels else count * OPTIMIZERS[job.optimizer].temporary_bytes
    at_end = gradients + temporary > held
    state = OPTIMIZERS[job.optimizer].state_bytes * precision.state_scale
    groups = (gradients * values["ddp_bucket_share"] + values["nccl_gib_per_group"] * GIB) if job.gpus > 1 else 0.0
    workspace = own["workspace_gib"] * GIB
    working = workspace + temporary if at_end else workspace
    activations = job.model.input_bytes if at_end and not persistent else held
    dynamic = activations + workspace
    return Memory(
        parameters_gib=count * (precision.weight_bytes + precision.cast_bytes) / GIB,
        gradients_gib=(gradients if persistent or at_end else 0.0) / GIB,
        optimizer_gib=count * (precision.master_bytes + state) / GIB,
        activations_gib=activations / GIB,
        logits_gib=0.0,
        recompute_buffer_gib=0.0,
        communication_gib=groups / GIB,
        unsharded_gib=0.0,
        temporary_gib=working / GIB,
        reserve_gib=values["reserve_share"] * dynamic / GIB + own["reserve_gib"],
        context_gib=job.machine.gpu.context_gib,
    )
