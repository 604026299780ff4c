"""Initial weights that depend on the seed and on a parameter's name, and on nothing else.

A model is built on the meta device, cut in whatever way, and filled here: each rank draws a whole parameter on the CPU,
keeps its part, and forgets the rest. So the same seed gives the same network on any layout. Called by the trainer.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

__all__ = ["fill", "gpt_rule", "plain_name", "resnet_rule"]

Rule = Callable[[str, tuple[int, ...]], tuple[float, float]]
"""A parameter's name and shape → the mean and standard deviation of its first values."""

_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.", "module.")


def plain_name(name: str) -> str:
    """The name that the model gave, without what wrappers put into it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def gpt_rule(layers: int) -> Rule:
    """GPT-2's: 0.02, and less for what adds to the residual stream of so many layers."""
    residual = 0.02 / math.sqrt(2 * layers)

    def rule(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
        if len(shape) == 1:
            return (1.0, 0.0) if name.endswith("weight") else (0.0, 0.0)
        return 0.0, residual if name.endswith((".out.weight", ".down.weight")) else 0.02

    return rule


def resnet_rule(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Kaiming's for convolutions (fan out), torch's own spread for the linear layer."""
    if len(shape) == 1:
        return (1.0, 0.0) if name.endswith("weight") else (0.0, 0.0)
    fan = shape[0] * math.prod(shape[2:]) if len(shape) > 2 else shape[1]
    return 0.0, math.sqrt((2.0 if len(shape) > 2 else 1 / 3) / fan)


@torch.no_grad()
def fill(model: nn.Module, seed: int, rule: Rule, alike: Mapping[str, str] | None = None) -> None:
    """Give every parameter its first values. The model has left the meta device.

    ``alike``: parameters that get the values of another name.
    """
    for name, parameter in model.named_parameters():
        plain = (alike or {}).get(plain_name(name), plain_name(name))
        whole = _drawn(plain, tuple(parameter.shape), seed, rule).to(parameter.dtype)
        if isinstance(parameter, DTensor):
            part = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.to_local().copy_(part.to_local())
        else:
            parameter.copy_(whole)


def _drawn(name: str, shape: tuple[int, ...], seed: int, rule: Rule) -> Tensor:
    mean, deviation = rule(name, shape)
    if deviation == 0.0:
        return torch.full(shape, mean, dtype=torch.float64)
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}:{name}".encode()))
    return torch.empty(shape, dtype=torch.float64).normal_(mean, deviation, generator=generator)
