"""The transformers that ``plan_h200.py`` trains, as plainly as PyTorch allows: GPT (pre-norm, learned
positions, tied output) and Llama (RMS norm, rotary positions, grouped queries, SwiGLU), with optional
checkpointing of every layer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vivace.plan.models.transformer import Transformer

__all__ = ["Decoder"]


class GptLayer(nn.Module):
    def __init__(self, size: Transformer) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.qkv, self.out = nn.Linear(size.hidden, 3 * size.hidden), nn.Linear(size.hidden, size.hidden)
        self.up, self.down = nn.Linear(size.hidden, size.ffn), nn.Linear(size.ffn, size.hidden)

    def forward(self, x: Tensor, _: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, 2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LlamaLayer(nn.Module):
    def __init__(self, size: Transformer) -> None:
        super().__init__()
        self.size = size
        self.norm1, self.norm2 = nn.RMSNorm(size.hidden), nn.RMSNorm(size.hidden)
        self.q = nn.Linear(size.hidden, size.attention_width, bias=False)
        self.k = nn.Linear(size.hidden, size.kv_width, bias=False)
        self.v = nn.Linear(size.hidden, size.kv_width, bias=False)
        self.out = nn.Linear(size.attention_width, size.hidden, bias=False)
        self.gate = nn.Linear(size.hidden, size.ffn, bias=False)
        self.up = nn.Linear(size.hidden, size.ffn, bias=False)
        self.down = nn.Linear(size.ffn, size.hidden, bias=False)

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        assert angles is not None
        batch, length, _ = x.shape
        normed = self.norm1(x)
        shape = (batch, length, -1, self.size.head_dim)
        q, k, v = (layer(normed).view(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(
            _rotate(q, angles),
            _rotate(k, angles),
            v,
            is_causal=True,
            enable_gqa=self.size.kv_heads != self.size.heads,
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class Decoder(nn.Module):
    """A decoder of the planner's own description, so that both talk about the same model."""

    def __init__(self, size: Transformer, checkpointing: bool = False) -> None:
        super().__init__()
        self.size, self.checkpointing = size, checkpointing
        layer = LlamaLayer if size.gated else GptLayer
        self.tokens = nn.Embedding(size.vocab, size.hidden)
        self.places = nn.Embedding(size.seq_len, size.hidden) if size.positions == "learned" else None
        self.layers = nn.ModuleList(layer(size) for _ in range(size.layers))
        self.norm: nn.Module = nn.RMSNorm(size.hidden) if size.gated else nn.LayerNorm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocab, bias=False)
        if size.tied:
            self.head.weight = self.tokens.weight

    def angles(self, length: int, device: torch.device) -> Tensor | None:
        if self.places is not None:
            return None
        half = self.size.head_dim // 2
        speed = 500_000.0 ** (-torch.arange(half, device=device) / half)
        return torch.arange(length, device=device)[:, None] * speed

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        angles = self.angles(tokens.shape[1], tokens.device)
        for layer in self.layers:
            x = checkpoint(layer, x, angles, use_reentrant=False) if self.checkpointing else layer(x, angles)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
