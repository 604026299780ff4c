"""LoRA: a trained GPT stays as it is, and each linear layer of its blocks learns a small addition.

Hu et al. 2021 (arXiv 2106.09685): the weights become W + alpha/rank x up x down. ``up`` begins at zero, so training
begins with the trained model. Gradients and optimizer states exist for the additions only. Called by recipes.
"""

from __future__ import annotations

import math
import zlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vivace.train.models.gpt import GPT

__all__ = ["LoraLinear", "add_lora", "merged_state"]

_ADDED = ("lora_down", "lora_up")


class LoraLinear(nn.Linear):
    """The same parameters under the same names as the layer that it replaces, and two matrices."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, draws: torch.Generator) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.scale = alpha / rank
        down = torch.empty(rank, base.in_features).normal_(0, 1 / math.sqrt(base.in_features), generator=draws)
        self.lora_down = nn.Parameter(down.to(base.weight))
        self.lora_up = nn.Parameter(base.weight.new_zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        added = F.linear(F.linear(x, self.lora_down), self.lora_up)
        return F.linear(x, self.weight, self.bias) + self.scale * added

    def merged(self) -> Tensor:
        return self.weight + self.scale * (self.lora_up @ self.lora_down)


def add_lora(model: GPT, rank: int, alpha: float, seed: int) -> None:
    """In place. The first values follow from the seed and the layer's name."""
    model.requires_grad_(False)
    for name, module in list(model.blocks.named_modules()):
        for child, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear):
                draws = torch.Generator().manual_seed(zlib.crc32(f"{seed}:{name}.{child}".encode()))
                setattr(module, child, LoraLinear(layer, rank, alpha, draws))


@torch.no_grad()
def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of a plain model that computes the same."""
    state = {name: each for name, each in model.state_dict().items() if not name.endswith(_ADDED)}
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}
    return {**state, **{f"{name}.weight": layer.merged() for name, layer in layers.items()}}
