"""Seconds of the output layer, the loss and the embedding. Called by ``step.py``."""

from __future__ import annotations

from dataclasses import dataclass

from vivace.plan.facts.frameworks import Loss
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.time.eager import embedding_gradient_bytes, loss_traffic, weight_cast_bytes
from vivace.plan.time.layer import Shape
from vivace.plan.time.linear import linear_seconds

__all__ = ["HeadTime", "head_time"]


@dataclass(frozen=True)
class HeadTime:
    """The output layer, the loss and the embedding, per micro-batch."""

    forward: float
    backward: float


def head_time(job: TransformerJob) -> HeadTime:
    """Output layer and loss: the vocabulary is cut by tensor parallelism; the loss is fp32."""
    gpu, model, shape = job.machine.gpu, job.model, Shape.of(job)
    width = -(-model.vocab // shape.tensor)
    if job.framework.pads_vocabulary:
        width = -(-width // 128) * 128
    dtype = "bf16" if shape.dtype == "fp8" else shape.dtype
    rows = max(1, round(shape.tokens * model.predicted_share))
    forward, backward = linear_seconds(gpu, dtype, rows, width, model.hidden)
    logits = rows * width / gpu.stream_rate
    passes = _loss_passes(job.framework.loss, shape.activation_bytes)
    forward += logits * passes[0]
    backward += logits * passes[1]
    embedding = shape.tokens * model.hidden * shape.activation_bytes * 4 / gpu.stream_rate
    if job.framework.eager:
        casts = width * model.hidden * weight_cast_bytes(shape.activation_bytes, shape.residual_bytes)
        forward += casts / gpu.stream_rate
        summed = embedding_gradient_bytes(model, job.precision.gradient_bytes) / shape.tensor
        backward += (casts + summed) / gpu.stream_rate
    return HeadTime((forward + embedding) * job.compute_scale, (backward + embedding) * job.compute_scale)


def _loss_passes(loss: Loss, activation_bytes: float) -> tuple[float, float]:
    """Bytes per logit, forward and backward."""
    if loss == "fused":
        return 8.0, 6.0  # read, write the gradient
    if loss == "by steps":
        # Megatron's vocabulary-parallel loss takes maximum, difference, exponential, sum and quotient one by one.
        return 28.0, 24.0
    return loss_traffic(activation_bytes)
