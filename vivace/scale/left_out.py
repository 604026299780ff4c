"""What FSDP2 cannot shard, and what must stay as the script made it: models, and single parameters of a model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from vivace.scale.sharded import Sharded

__all__ = ["cannot_be_sharded", "is_held", "left_out"]


def cannot_be_sharded(root: torch.nn.Module) -> str | None:
    for module in root.modules():
        if isinstance(module, (torch.jit.ScriptModule, torch._dynamo.OptimizedModule)):
            return "it is compiled"
        if getattr(module, "_compiled_call_impl", None) is not None:
            return "it is compiled"
        if hasattr(module, "parametrizations"):
            return "it has parametrizations (weight or spectral norm)"
        for parameter in module._parameters.values():
            if parameter is not None and not isinstance(parameter, torch.nn.Parameter):
                return "its parameters are computed by the script"
        if getattr(module, "sparse", False) is True:
            return f"a {type(module).__name__} has sparse gradients"
    devices = {(each.device, each.dtype) for each in root.parameters()}
    if len({device for device, _ in devices}) > 1:
        return "its parameters are on several devices"
    return None


def left_out(parameter: Any, own: list[tuple[str, Any]]) -> str | None:
    """Why one parameter stays on every rank."""
    if parameter.dim() == 0:
        return "a scalar"
    if type(parameter) is not torch.nn.Parameter:
        return f"a {type(parameter).__name__}"
    if not parameter.is_contiguous():
        return "not contiguous in memory (channels_last)"
    if parameter.is_complex() or not parameter.is_floating_point():
        return f"of type {parameter.dtype}"
    if parameter.dtype != Counter(each.dtype for _, each in own).most_common(1)[0][0]:
        return "of another type than most"
    if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
        return "the script has a hook on it"
    return None


def is_held(parameter: Any, own: list[tuple[str, Any]]) -> str | None:
    """Why the object cannot become another one."""
    if parameter._use_count() > 1:
        return "a graph of the script still holds it"
    if _shares_memory(parameter, own):
        return "another tensor of the script shares its memory"
    return None


def _shares_memory(parameter: torch.Tensor, own: list[tuple[str, Any]]) -> bool:
    storage = parameter.untyped_storage()
    alone = torch.empty(1).untyped_storage()
    others = sum(
        each is not parameter and not isinstance(each, Sharded) and each.untyped_storage()._cdata == storage._cdata
        for _, each in own
    )
    count: Any = torch._C._storage_Use_Count
    return int(count(storage._cdata)) > int(count(alone._cdata)) + 1 + others
