"""What eager PyTorch moves through memory, counted kernel by kernel from what autograd and autocast run.

Bytes per token and hidden unit of a layer, per logit of the loss, and per weight that autocast casts. Under
autocast norms and the residual stream are fp32, each linear layer casts its input and its weight, and
backward casts their gradients back. Counted, not fitted. Pure arithmetic; called by ``layer.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from vivace.plan.models.transformer import Transformer

__all__ = ["Traffic", "embedding_gradient_bytes", "layer_traffic", "loss_traffic", "weight_cast_bytes"]

# log_softmax over a row that does not fit in shared memory reads it for the maximum, the sum and the result,
# and writes once; its backward writes the scattered gradient (4), reads it for the sum (4), then reads it and
# the output and writes (12). aten/src/ATen/native/cuda/SoftMax.cu, in fp32.
LOG_SOFTMAX_FORWARD = 16.0
LOG_SOFTMAX_BACKWARD = 20.0


@dataclass(frozen=True)
class Traffic:
    """Bytes per token and hidden unit. ``whole`` is replicated over tensor ranks, ``split`` is cut by them."""

    whole_forward: float
    whole_backward: float
    split_forward: float
    split_backward: float


def layer_traffic(model: Transformer, activation_bytes: float, residual_bytes: float, flash: bool) -> Traffic:
    """Every elementwise kernel of one layer, reads and writes; products and fused attention are elsewhere."""
    whole_forward, whole_backward = _residual_stream(model, activation_bytes, residual_bytes)
    a, ratio, kv = activation_bytes, model.ffn / model.hidden, model.kv_width / model.attention_width
    # GELU: in, out; back: gradient, in, out. SwiGLU: SiLU 2 and product 3; back: two products 6 and SiLU 3.
    split_forward, split_backward = (5 * a * ratio, 9 * a * ratio) if model.gated else (2 * a * ratio, 3 * a * ratio)
    if model.positions == "rotary":  # four half products, two half sums, one concatenation; back the same and a sum
        split_forward += 9 * a * (1 + kv)
        split_backward += 10 * a * (1 + kv)
    if not model.gated:  # the gradients of Q, K and V are concatenated
        split_backward += 2 * a * (1 + 2 * kv)
    if model.biases:  # gradients of the biases: one read each
        split_backward += a * (1 + 2 * kv + ratio)
    if not flash:  # Q, K, V and the context are copied to the layout of the batched products, and back
        split_forward += 2 * a * (2 + 2 * kv)
        split_backward += 2 * a * (2 + 2 * kv)
    return Traffic(whole_forward, whole_backward, split_forward, split_backward)


def _residual_stream(model: Transformer, a: float, r: float) -> tuple[float, float]:
    """Two norms, two residual sums, dropout, and autocast's casts around them."""
    inputs = 5 if model.gated else 2  # linear layers that read a norm's output
    dropout = 2 * (2 * a + 1) if model.dropout else 0.0
    forward = 2 * (2 * r) + 2 * (2 * r + a) + dropout
    # A norm's backward reads gradient and input twice (input's, then weight's gradient) and writes once.
    backward = 2 * (5 * r) + 2 * (3 * r) + (inputs - 2) * 3 * r + dropout + (2 * a if model.biases else 0.0)
    if r > a:
        forward += inputs * (r + a)
        backward += (inputs + 2) * (r + a)
    return forward, backward


def loss_traffic(activation_bytes: float) -> tuple[float, float]:
    """Bytes per logit, forward and backward: to fp32, log-softmax, and the gradient's way back."""
    cast = 4.0 + activation_bytes if activation_bytes < 4 else 0.0
    return LOG_SOFTMAX_FORWARD + cast, LOG_SOFTMAX_BACKWARD + cast


def weight_cast_bytes(activation_bytes: float, residual_bytes: float) -> float:
    """Bytes per weight and direction when autocast casts weights (forward) and their gradients (backward)."""
    return residual_bytes + activation_bytes if residual_bytes > activation_bytes else 0.0


def embedding_gradient_bytes(model: Transformer, gradient_bytes: float) -> float:
    """A dense gradient is cleared, and summed with the output layer's when both share their weights."""
    return model.vocab * model.hidden * gradient_bytes * (4.0 if model.tied else 1.0)
