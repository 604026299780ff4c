"""The blocks of a transformer: the unit that is recomputed, compiled, sharded and cut between stages."""

from __future__ import annotations

from torch import nn

__all__ = ["blocks_of"]


def blocks_of(model: nn.Module) -> nn.ModuleDict:
    """Those of our GPT (``blocks``), by their names; none in a model of another kind."""
    blocks = getattr(model, "blocks", None)
    return blocks if isinstance(blocks, nn.ModuleDict) else nn.ModuleDict()
