"""``TransformerSizes``: which transformer a plan was made for, and which one the trainer builds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Part

__all__ = ["Positions", "TransformerSizes"]

Positions = Literal["learned", "rotary", "alibi"]


class TransformerSizes(Part):
    """A stack of equal layers. The defaults are a GPT that trains on a CPU in seconds."""

    layers: int = Field(4, ge=1)
    hidden: int = Field(128, ge=1)
    heads: int = Field(4, ge=1)
    kv_heads: int = Field(0, ge=0, description="key-value heads; 0: as many as heads")
    ffn: int = Field(0, ge=0, description="width of the feed-forward block; 0: 4 x hidden")
    vocab: int = Field(512, ge=2)
    gated: bool = Field(False, description="SwiGLU: three matrices instead of two")
    biases: bool = Field(False, description="biases, and layer norms instead of RMS norms")
    tied: bool = Field(False, description="the output layer shares the embedding's weights")
    positions: Positions = "rotary"
    head_dim: int = Field(0, ge=0, description="0: hidden / heads")
    causal: bool = True
    window: int = Field(0, ge=0, description="tokens that a query looks back on, in some layers; 0: all")
