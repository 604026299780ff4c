"""Seconds of one transformer layer on one rank: matrix products, attention, elementwise traffic,
tensor-parallel links.

Every operation is on its roof: products by tiles and waves, elementwise kernels by bytes. Cached, because
a search asks for the same layer thousands of times. Touches nothing; called by ``step.py`` and
``sizing.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from vivace.plan.facts.constants import constants
from vivace.plan.facts.frameworks import Framework
from vivace.plan.jobs.job import Attention, TransformerJob
from vivace.plan.machines.machine import Gpu
from vivace.plan.models.transformer import Transformer
from vivace.plan.time.collectives import Group, all_gather_seconds, all_reduce_seconds, point_to_point_seconds
from vivace.plan.time.eager import layer_traffic, weight_cast_bytes
from vivace.plan.time.linear import linear_seconds, product_seconds

__all__ = ["LayerTime", "Shape", "layer_time"]

# Kernels of one layer, forward and backward: what the processor must launch (Megatron's layer, profiler
# count).
FORWARD_KERNELS = 22
BACKWARD_KERNELS = 36
# Matrix products and attention among them; the rest are the small kernels of an eager layer.
FORWARD_PRODUCTS = 5
BACKWARD_PRODUCTS = 10


@dataclass(frozen=True)
class Shape:
    """What one rank sees of a layer."""

    micro_batch: int
    seq_len: int
    """Whole sequence; ``context`` ranks share its queries."""
    tensor: int
    context: int
    sequence_parallel: bool
    dtype: str
    activation_bytes: float
    residual_bytes: float
    """Wider than the activations under autocast."""
    attention: Attention
    framework: Framework

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.seq_len // self.context

    @classmethod
    def of(cls, job: TransformerJob) -> Shape:
        layout = job.layout
        return cls(
            layout.micro_batch,
            job.seq_len,
            layout.tensor,
            layout.context,
            layout.sequence_parallel,
            job.precision.compute,
            job.precision.activation_bytes,
            4.0 if job.precision.cast_bytes else job.precision.activation_bytes,
            job.attention,
            job.framework,
        )


@dataclass(frozen=True)
class LayerTime:
    """Seconds of GPU work per micro-batch and layer; communication apart."""

    forward: float
    backward: float
    selective: float
    """What selective recomputation repeats: Megatron the attention core, operator-level policies half a
    layer.
    """
    tensor_forward: float
    tensor_backward: float
    context_forward: float
    context_backward: float
    launch_forward: float
    launch_backward: float
    runs_ahead: bool = False

    def seconds(self, recompute: str) -> tuple[float, float]:
        """Forward and backward with communication.

        The GPU's work takes no less than the processor needs to launch it; collectives wait for every
        rank, so they come on top of either. Where the processor runs ahead, it is late only over a whole
        step (``late``).
        """
        links_forward = self.tensor_forward + self.context_forward
        links_backward = self.tensor_backward + self.context_backward
        backward, launch_backward = self.backward, self.launch_backward
        if recompute == "full":
            backward += self.forward
            launch_backward += self.launch_forward
            links_backward += links_forward
        elif recompute == "selective":
            backward += self.selective
            launch_backward += 0.25 * self.launch_forward
        if self.runs_ahead:
            return self.forward + links_forward, backward + links_backward
        return (
            max(self.forward, self.launch_forward) + links_forward,
            max(backward, launch_backward) + links_backward,
        )

    def late(self, recompute: str, layers: int, busy: float) -> float:
        """Seconds that a processor which runs ahead needs beyond the ``busy`` GPU to launch ``layers`` layers."""
        again = {"full": 1.0, "selective": 0.25}.get(recompute, 0.0)
        launches = layers * ((1.0 + again) * self.launch_forward + self.launch_backward)
        return max(0.0, launches - busy) if self.runs_ahead else 0.0


def _linears(model: Transformer, tensor: int) -> tuple[tuple[int, int], ...]:
    """(outputs, inputs) of the four products of a layer on one rank."""
    return (
        (max(1, (model.attention_width + 2 * model.kv_width) // tensor), model.hidden),
        (model.hidden, max(1, model.attention_width // tensor)),
        (max(1, model.ffn * (model.ffn_matrices - 1) // tensor), model.hidden),
        (model.hidden, max(1, model.ffn // tensor)),
    )


def _matrices(gpu: Gpu, model: Transformer, shape: Shape) -> tuple[float, float]:
    pairs = _linears(model, shape.tensor)
    times = [linear_seconds(gpu, shape.dtype, shape.tokens, out, inp) for out, inp in pairs]
    forward, backward = sum(f for f, _ in times), sum(b for _, b in times)
    if shape.dtype == "fp8":
        casts = _fp8_casts(gpu, shape, pairs)
        forward, backward = forward + casts[0], backward + casts[1]
    return forward, backward


def _fp8_casts(gpu: Gpu, shape: Shape, pairs: tuple[tuple[int, int], ...]) -> tuple[float, float]:
    """Inputs, weights and gradients are read in 16 bit and written in 8, straight and transposed."""
    unit = 4.0 * shape.framework.stream / gpu.stream_rate
    weights = sum(out * inp for out, inp in pairs)
    forward = shape.tokens * sum(inp for _, inp in pairs) + weights
    return unit * forward, unit * shape.tokens * sum(out for out, _ in pairs)


def _attention(gpu: Gpu, model: Transformer, shape: Shape) -> tuple[float, float]:
    """The core: scores, softmax, context. 16-bit even when the linear layers compute in fp8."""
    dtype = "bf16" if shape.dtype == "fp8" else shape.dtype
    heads = max(1, model.heads // shape.tensor)
    queries = shape.seq_len // shape.context
    if shape.attention == "flash":
        return _flash(gpu, model, shape, dtype, heads, queries)
    batch, s, d = shape.micro_batch * heads, shape.seq_len, model.head_dim
    scores = product_seconds(gpu, dtype, queries, s, d, batch)
    context = product_seconds(gpu, dtype, queries, d, s, batch)
    # Passes over the s x s matrix (reads + writes), per element. Megatron's kernel fuses scale, mask and
    # softmax; eager PyTorch scales, masks, computes softmax (in fp32 under autocast) and drops out one after
    # the other.
    fused = shape.attention == "fused-softmax"
    dropout = 2.5 if model.dropout else 0.0
    passes_forward = (2.0 if fused else 7.0) + dropout
    passes_backward = (3.0 if fused else 6.0) + dropout
    matrix = batch * queries * s * shape.activation_bytes / gpu.stream_rate
    return scores + context + passes_forward * matrix, 2 * (scores + context) + passes_backward * matrix


def _flash(gpu: Gpu, model: Transformer, shape: Shape, dtype: str, heads: int, queries: int) -> tuple[float, float]:
    work = 4.0 * shape.micro_batch * heads * queries * shape.seq_len * model.head_dim
    work *= 0.5 * model.attention_share(shape.seq_len) if model.causal else 1.0
    # Short sequences leave blocks on the diagonal half empty and multiprocessors without work.
    filled = shape.seq_len / (shape.seq_len + constants("gemm")["flash_half_seq"])
    peak = gpu.peak(dtype if gpu.supports(dtype) else "fp16") * filled
    # The backward pass has five products where the forward has two.
    forward, backward = work / (peak * gpu.flash_fraction), 2.5 * work / (peak * gpu.flash_backward_fraction)
    floor = shape.tokens * heads * model.head_dim * 8.0 / gpu.stream_rate + 5e-6
    return max(forward, floor), max(backward, 2 * floor)


def _elementwise(gpu: Gpu, model: Transformer, shape: Shape) -> tuple[float, float]:
    """Norms, residuals, dropout, activation, rotary: passes over tokens x hidden (reads + writes)."""
    if shape.framework.eager:
        return _eager_elementwise(gpu, model, shape)
    t = shape.tensor
    whole = 1.0 / t if shape.sequence_parallel else 1.0
    ratio = model.ffn / model.hidden
    dropout = model.dropout
    # Two norms (2 forward, 3 backward) and two residual additions with dropout's mask.
    whole_forward = 2 * 2.0 + 2 * (3.5 if dropout else 3.0)
    whole_backward = 2 * 3.0 + 2 * (5.5 if dropout else 3.0)
    activation_forward, activation_backward = (3.0, 5.0) if model.gated else (2.0, 3.0)
    rotary = 2.0 * (1 + model.kv_width / model.attention_width) if model.positions == "rotary" else 0.0
    split_forward = 2.0 + rotary + activation_forward * ratio
    split_backward = 4.0 + rotary + activation_backward * ratio
    unit = shape.tokens * model.hidden * shape.activation_bytes * shape.framework.stream
    unit /= gpu.stream_rate
    gaps = 8 * constants("gemm")["gap_us"] * 1e-6
    return (
        unit * (whole * whole_forward + split_forward / t) + gaps,
        unit * (whole * whole_backward + split_backward / t) + gaps,
    )


def _eager_elementwise(gpu: Gpu, model: Transformer, shape: Shape) -> tuple[float, float]:
    """Counted kernel by kernel, the casts of the layer's weights included."""
    whole = 1.0 / shape.tensor if shape.sequence_parallel else 1.0
    traffic = layer_traffic(model, shape.activation_bytes, shape.residual_bytes, shape.attention == "flash")
    unit = shape.tokens * model.hidden * shape.framework.stream / gpu.stream_rate
    weights = model.attention_parameters + model.ffn_parameters
    casts = weights / shape.tensor * weight_cast_bytes(shape.activation_bytes, shape.residual_bytes) / gpu.stream_rate
    gap = constants("gemm")["gap_us"] * 1e-6
    forward = unit * (whole * traffic.whole_forward + traffic.split_forward / shape.tensor)
    backward = unit * (whole * traffic.whole_backward + traffic.split_backward / shape.tensor)
    return (
        forward + casts + gap * (FORWARD_KERNELS - FORWARD_PRODUCTS),
        backward + casts + gap * (BACKWARD_KERNELS - BACKWARD_PRODUCTS),
    )


def _tensor_links(job: TransformerJob, shape: Shape) -> tuple[float, float]:
    if shape.tensor == 1:
        return 0.0, 0.0
    group = Group.of(job.machine, shape.tensor)
    size = shape.tokens * job.model.hidden * shape.activation_bytes
    if shape.sequence_parallel:
        once = 2 * all_gather_seconds(job.machine, group, size)
    else:
        once = all_reduce_seconds(job.machine, group, size)
    hidden = shape.framework.tensor_overlap_backward
    return 2 * once, 2 * once * (1 - hidden)


def _context_links(job: TransformerJob, shape: Shape, core: tuple[float, float]) -> tuple[float, float]:
    """A ring passes keys and values around; what the attention does not hide is exposed."""
    if shape.context == 1:
        return 0.0, 0.0
    size = shape.tokens * 2 * job.model.kv_width / shape.tensor * shape.activation_bytes
    across = shape.tensor * shape.context > job.machine.gpus_per_node
    once = point_to_point_seconds(job.machine, size, across)
    steps = shape.context - 1
    return max(0.0, steps * once - core[0]) + once, max(0.0, 2 * steps * once - core[1]) + once


@lru_cache(maxsize=50_000)
def _gpu_times(gpu: Gpu, model: Transformer, shape: Shape) -> tuple[float, float, float, float]:
    matrices = _matrices(gpu, model, shape)
    core = _attention(gpu, model, shape)
    other = _elementwise(gpu, model, shape)
    return matrices[0] + core[0] + other[0], matrices[1] + core[1] + other[1], core[0], core[1]


def clear_cache() -> None:
    """Forget cached layers (after constants were overridden)."""
    _gpu_times.cache_clear()


def layer_time(job: TransformerJob) -> LayerTime:
    shape = Shape.of(job)
    forward, backward, core_forward, core_backward = _gpu_times(job.machine.gpu, job.model, shape)
    scale = job.compute_scale
    tensor = _tensor_links(job, shape)
    context = _context_links(job, shape, (core_forward, core_backward))
    runs_ahead = job.framework.runs_ahead
    # A calibrated step that waits for the processor was measured with the user's own processor.
    launch = job.framework.launch_us * 1e-6 * (scale if runs_ahead else 1.0)
    return LayerTime(
        forward * scale,
        backward * scale,
        _selective(job, forward, core_forward) * scale,
        *tensor,
        *context,
        launch * FORWARD_KERNELS,
        launch * BACKWARD_KERNELS,
        runs_ahead,
    )


def _selective(job: TransformerJob, forward: float, core: float) -> float:
    """Megatron repeats the core (nothing to gain with flash attention, which repeats it by itself).

    PyTorch's selective checkpointing saves every other product (torchtitan's policy) and repeats the rest.
    """
    if job.framework.selects_attention_core:
        return 0.0 if job.attention == "flash" else core
    return 0.5 * forward
