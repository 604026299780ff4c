"""A GPT in plain torch, from GPT-2 (biases, learned positions) to Llama (gated, rotary), that every layout can cut.

Blocks sit in a ``ModuleDict``, so that a stage of a pipeline keeps their names; a stage has ``None`` for what it lacks.
Head counts follow from the tensors, so that tensor parallelism needs no change here. Called by the trainer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vivace.records.transformer import TransformerSizes

__all__ = ["GPT", "Attention", "Block", "CausalAttention", "FullAttention"]


class GPT(nn.Module):
    """Tokens in, logits out. ``set_positions`` must be called once, with the positions of the tokens it will see."""

    def __init__(self, sizes: TransformerSizes, seq_len: int) -> None:
        super().__init__()
        self.head_dim = sizes.hidden // sizes.heads
        self.tied = sizes.tied
        """Whether output and embedding are to share their weights: ``vivace.parallel.tied`` does it, on any layout."""
        self.uses_rotary = sizes.positions == "rotary"
        self.embedding: nn.Embedding | None = nn.Embedding(sizes.vocab, sizes.hidden)
        self.positions = nn.Embedding(seq_len, sizes.hidden) if sizes.positions == "learned" else None
        self.blocks = nn.ModuleDict({str(layer): Block(sizes) for layer in range(sizes.layers)})
        self.norm: nn.Module | None = _norm(sizes)
        self.output: nn.Linear | None = nn.Linear(sizes.hidden, sizes.vocab, bias=False)
        self.logit_factor = 1.0
        """Of the output; see ``vivace.train.models.mup``."""
        # No buffers: ranks that split a sequence have different positions, and DDP makes buffers alike.
        self.rotary = self.position_ids = torch.empty(0, device="cpu")

    def set_positions(self, position_ids: Tensor) -> None:
        """Where in the sequence the tokens stand: 0, 1, 2, … unless the sequence is split over ranks."""
        self.position_ids = position_ids.reshape(1, -1)
        if self.uses_rotary:
            self.rotary = _rotation(position_ids, self.head_dim)

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions is not None:
                x = x + self.positions(self.position_ids)
        for block in self.blocks.values():
            x = block(x, self.rotary)
        if self.norm is not None and self.output is not None:
            x = self.norm(x)
            x = self.output(x if self.logit_factor == 1.0 else x * self.logit_factor)
        return x


class Block(nn.Module):
    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__()
        self.attention_norm = _norm(sizes)
        self.attention = Attention(sizes)
        self.ffn_norm = _norm(sizes)
        self.ffn = GatedFeedForward(sizes) if sizes.gated else FeedForward(sizes)

    def forward(self, x: Tensor, rotary: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary)
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class Attention(nn.Module):
    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__()
        hidden, self.head_dim = sizes.hidden, sizes.hidden // sizes.heads
        kv_width = (sizes.kv_heads or sizes.heads) * self.head_dim
        self.query = nn.Linear(hidden, hidden, bias=sizes.biases)
        self.key = nn.Linear(hidden, kv_width, bias=sizes.biases)
        self.value = nn.Linear(hidden, kv_width, bias=sizes.biases)
        self.out = nn.Linear(hidden, hidden, bias=sizes.biases)
        self.core: nn.Module = CausalAttention() if sizes.causal else FullAttention()
        """Queries, keys and values of all heads in, their attention out; context parallelism puts its own here."""

    def forward(self, x: Tensor, rotary: Tensor) -> Tensor:
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        if rotary.numel():
            query, key = _rotated(query, rotary), _rotated(key, rotary)
        attended = self.core(query, key, value)
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class CausalAttention(nn.Module):
    """(batch, heads, tokens, head size); key-value heads may be fewer (grouped queries)."""

    scale: float | None = None
    """Of the scores; None: one over the root of the head size."""
    is_causal = True

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=self.is_causal, scale=self.scale, enable_gqa=grouped
        )


class FullAttention(CausalAttention):
    """Each token looks at all others, for masked language models."""

    is_causal = False


class FeedForward(nn.Module):
    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__()
        width = sizes.ffn or 4 * sizes.hidden
        self.up = nn.Linear(sizes.hidden, width, bias=sizes.biases)
        self.down = nn.Linear(width, sizes.hidden, bias=sizes.biases)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


class GatedFeedForward(FeedForward):
    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__(sizes)
        self.gate = nn.Linear(sizes.hidden, self.up.out_features, bias=sizes.biases)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


def _norm(sizes: TransformerSizes) -> nn.Module:
    return nn.LayerNorm(sizes.hidden) if sizes.biases else nn.RMSNorm(sizes.hidden, eps=1e-6)


def _rotation(positions: Tensor, head_dim: int) -> Tensor:
    """Cosines and sines, (2, tokens, head_dim / 2), in float64: rounded once, where they are used."""
    frequencies = 10_000.0 ** (-torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float64) / head_dim)
    angles = positions.double()[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()))


def _rotated(x: Tensor, rotary: Tensor) -> Tensor:
    cos, sin = rotary.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
