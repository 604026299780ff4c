"""Bytes of activations that the backward pass needs, per layer and for the output layer.

Korthikanti 2022 table 2 taken apart tensor by tensor, so that flash attention, grouped queries, gated
feed-forward, no dropout and sequence parallelism each change only their own term. Pure arithmetic; called
by ``peak.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from vivace.plan.jobs.job import Attention
from vivace.plan.models.transformer import Transformer
from vivace.records.layout import Recompute

__all__ = ["LayerActivations", "layer_activations", "logits_bytes"]


@dataclass(frozen=True)
class LayerActivations:
    """Bytes that one layer keeps for one micro-batch on one rank."""

    whole: float
    """Norm inputs, block inputs and dropout masks: replicated over tensor ranks unless the sequence is
    split.
    """
    split: float
    """Queries, keys, values, attention output, feed-forward: cut by tensor parallelism."""
    core: float
    """Scores, probabilities and masks of unfused attention (or the statistics of flash attention)."""
    block_input: float
    """What full recomputation keeps."""

    @property
    def total(self) -> float:
        return self.whole + self.split + self.core

    def kept(self, recompute: Recompute) -> float:
        if recompute == "full":
            return self.block_input
        return self.whole + self.split + (0.0 if recompute == "selective" else self.core)


def layer_activations(
    model: Transformer,
    micro_batch: int,
    seq_len: int,
    *,
    tensor: int = 1,
    context: int = 1,
    sequence_parallel: bool = False,
    attention: Attention = "flash",
    activation_bytes: float = 2.0,
    residual_bytes: float | None = None,
    fused: bool = True,
) -> LayerActivations:
    """``fused``: the activation of a gated block keeps three tensors, not four. ``residual_bytes``: the
    width of norm inputs and of the stream between layers, when it differs from that of the products.
    """
    residual_bytes = activation_bytes if residual_bytes is None else residual_bytes
    tokens = micro_batch * seq_len / context
    unit = tokens * model.hidden
    masks = 2.0 * unit if model.dropout else 0.0
    # Autocast makes a 16-bit copy for every linear layer: five in a block with separate Q, K, V, gate and up.
    inputs = 5 if model.gated and residual_bytes > activation_bytes else 2
    whole = unit * (inputs * activation_bytes + 2 * residual_bytes) + masks
    heads_ratio = model.attention_width / model.hidden
    kv_ratio = model.kv_width / model.hidden
    ffn_tensors = (3 if fused else 4) if model.gated else 2
    split = unit * activation_bytes * (2 * heads_ratio + 2 * kv_ratio + ffn_tensors * model.ffn / model.hidden)
    core = _core_bytes(model, micro_batch, seq_len, context, attention, activation_bytes)
    divisor = tensor if sequence_parallel else 1
    return LayerActivations(whole / divisor, split / tensor, core / tensor, unit * residual_bytes / divisor)


def _core_bytes(
    model: Transformer,
    micro_batch: int,
    seq_len: int,
    context: int,
    attention: Attention,
    activation_bytes: float,
) -> float:
    rows = model.heads * micro_batch * seq_len / context
    if attention == "flash":
        return 4.0 * rows  # log-sum-exp in fp32
    matrix = rows * seq_len
    probabilities = matrix * activation_bytes
    dropped = matrix * (1.0 + activation_bytes) if model.dropout else 0.0
    # Eager attention under autocast keeps an fp32 softmax beside the 16-bit one.
    extra = matrix * 4.0 if attention == "eager" and activation_bytes == 2 else 0.0
    return probabilities + dropped + extra


def logits_bytes(
    model: Transformer, tokens: float, tensor: int, activation_bytes: float, per_logit_fp32: float
) -> float:
    """Logits in the compute type and the fp32 tensors of the loss that live with them."""
    return tokens * model.predicted_share * model.vocab / tensor * (activation_bytes + per_logit_fp32)
