"""Messages of the counted step, by process group: every operator of c10d that this rank calls, whoever calls it (DDP's
reducer, FSDP, DTensor, a pipeline or the script).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from vivace.measure.inside.groups import ALL_RANKS, dimension_of

__all__ = ["ExchangeCount"]

_SPACES = ("c10d", "_c10d_functional", "c10d_functional")
_NO_MESSAGE = ("wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_")


class ExchangeCount:
    """``calls`` and ``bytes`` by dimension. A message is as large as the whole tensor: what is gathered, or reduced."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    def see(self, operator: Any, args: Any, result: Any) -> None:
        """``operator`` was called in the counted step."""
        space, _, name = operator._schema.name.partition("::")
        if space not in _SPACES or name in _NO_MESSAGE:
            return
        group = _group(args)
        if isinstance(group, dist.ProcessGroup) and group.size() < 2:
            return
        dimension = dimension_of(group) if group is not None else ALL_RANKS
        self.calls[dimension] = self.calls.get(dimension, 0) + 1
        self.bytes[dimension] = self.bytes.get(dimension, 0) + max(map(_size, (*args, result)), default=0)


def _group(args: Any) -> Any:
    """Operators take it as an object, in a box of TorchScript's, or by its name."""
    for arg in args:
        if isinstance(arg, dist.ProcessGroup):
            return arg
        kind: Any = arg._type() if isinstance(arg, torch.ScriptObject) else None
        if kind is not None and "ProcessGroup" in kind.name():
            return dist.ProcessGroup.unbox(arg)
    resolve: Any = dist.distributed_c10d._resolve_process_group
    for arg in reversed(args):
        if isinstance(arg, str):
            return resolve(arg)
    return None


def _size(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
