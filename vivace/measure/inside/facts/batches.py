"""How many samples and tokens a batch holds, read from shapes only: no sync, no copy, never an error."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

__all__ = ["BatchReader", "describe_inputs", "first_input", "host_mib", "padding"]

_DEPTH = 4  # batches are tuples of dicts of tensors; deeper nesting is not a batch


class BatchReader:
    """Reads the batch size of one loader. Where it stands is decided by the first batch and then kept: the last batch
    of an epoch is smaller, and its other dimensions may happen to equal the size that was asked for.

    The first dimension of the first tensor, unless the loader's own ``batch_size`` is found elsewhere: in the second
    (time-first sequences), or as the length of a list (detection: one tensor per image).
    """

    def __init__(self, asked: int | None) -> None:
        self.asked = asked
        self.where: str | None = None

    def size(self, batch: Any) -> int | None:
        with contextlib.suppress(Exception):  # a batch can be anything, and what we want to know is never worth a crash
            if self.where is None:
                self.where = self._find(batch)
            return self._read(batch)
        return None

    def _find(self, batch: Any) -> str:
        first = _first_tensor(batch)
        shape = tuple(first.shape) if first is not None else ()
        if first is None:
            return "declared"
        if self.asked and self.asked > 1 and (not shape or shape[0] != self.asked):
            if len(shape) > 1 and shape[1] == self.asked:
                return "second"
            if _list_of_length(batch, self.asked) is not None:
                return "list"
        return "first"

    def _read(self, batch: Any) -> int | None:
        if self.where == "declared":
            return _declared_size(batch)
        if self.where == "list":
            images = batch[0] if isinstance(batch[0], (list, tuple)) else batch
            return len(images)
        shape = tuple(_first_tensor(batch).shape)
        if not shape:
            return 1
        return int(shape[1] if self.where == "second" and len(shape) > 1 else shape[0])


def padding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, int] | None:
    """(positions that seem to fill rows of token ids up, positions before them with the same value, all positions);
    the first two on the ids' device, not waited for.

    What fills up is the longest run of one value at each row's end, but for one. Text may end in such a run too: that
    value then stands elsewhere in the row as well.
    """
    with contextlib.suppress(Exception):
        tensor = kwargs.get("input_ids")
        tensor = tensor if tensor is not None else _first_tensor((args, kwargs))
        if tensor is not None and str(tensor.dtype) in _ID_DTYPES and tensor.dim() == 2 and tensor.shape[1] > 1:
            differs = (tensor != tensor[:, -1:]).flip(1).int()
            run = differs.argmax(dim=1)  # equal values at the end of each row, the last one included
            filled = (run - 1).clamp(min=0) * (differs.amax(dim=1) > 0)
            elsewhere = tensor.shape[1] - differs.sum(dim=1) - run
            return filled.sum(), (elsewhere * (filled > 0)).sum(), tensor.numel()
    return None


def host_mib(batch: Any) -> float | None:
    """The size of the tensors of a batch that lie on the host."""
    with contextlib.suppress(Exception):
        return _host_bytes(batch, _DEPTH) / 2**20
    return None


def _host_bytes(value: Any, depth: int) -> int:
    if hasattr(value, "element_size") and hasattr(value, "numel"):
        return int(value.numel() * value.element_size()) if value.device.type == "cpu" else 0
    if depth == 0:
        return 0
    items = value.values() if isinstance(value, Mapping) else value
    return sum(_host_bytes(item, depth - 1) for item in items) if isinstance(value, (Mapping, list, tuple)) else 0


def describe_inputs(
    args: tuple[Any, ...], kwargs: dict[str, Any], time_first: bool | None = None
) -> tuple[int | None, int | None, tuple[int, ...] | None]:
    """(samples, tokens, shape) of a forward's inputs; tokens only where the input is a matrix of integer ids.

    ``time_first``: whether the batch is the second dimension, where the network's layers tell (None: they do not)."""
    with contextlib.suppress(Exception):  # inputs can be anything (nested tensors raise when asked for their shape)
        return _samples_and_tokens(args, kwargs, time_first)
    return None, None, None


def first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tensor that a forward's batch is read from, or None."""
    tensor = kwargs.get("input_ids")
    return tensor if tensor is not None and hasattr(tensor, "shape") else _first_tensor((args, kwargs))


def _samples_and_tokens(
    args: tuple[Any, ...], kwargs: dict[str, Any], time_first: bool | None
) -> tuple[int | None, int | None, tuple[int, ...] | None]:
    tensor = first_input(args, kwargs)
    if tensor is None:
        return None, None, None
    if time_first is None:
        time_first = _is_time_first(tensor, args, kwargs)
    samples = int(tensor.shape[1 if time_first and tensor.dim() > 1 else 0]) if tensor.dim() else 1
    is_ids = not tensor.is_floating_point() and not tensor.is_complex() and str(tensor.dtype) in _ID_DTYPES
    return samples, tensor.numel() if is_ids and tensor.dim() == 2 else None, tuple(tensor.shape)


def _is_time_first(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the batch is the second dimension, by the hidden state beside the inputs: layers x batch x features."""
    if tensor.dim() not in (2, 3) or tensor.shape[0] == tensor.shape[1]:
        return False
    others = [state for state in _tensors((args, kwargs)) if state is not tensor]
    states = [state for state in others if state.dim() == 3 and state.is_floating_point()]
    fits = [state.shape[1] == tensor.shape[1] and state.shape[0] != tensor.shape[0] for state in states]
    return bool(fits) and all(fits)


def _tensors(value: Any, depth: int = _DEPTH) -> list[Any]:
    if hasattr(value, "shape") and hasattr(value, "is_floating_point"):
        return [value]
    items = list(value.values()) if isinstance(value, Mapping) else value
    if depth == 0 or not isinstance(items, (list, tuple)):
        return []
    return [tensor for item in items for tensor in _tensors(item, depth - 1)]


_ID_DTYPES = ("torch.int64", "torch.int32")


def _first_tensor(value: Any, depth: int = _DEPTH) -> Any:
    if hasattr(value, "shape") and hasattr(value, "numel"):
        return value
    if depth == 0:
        return None
    items = value.values() if hasattr(value, "values") and callable(value.values) else value
    if not isinstance(items, (list, tuple)) and not hasattr(value, "values"):
        return None
    for item in items:
        found = _first_tensor(item, depth - 1)
        if found is not None:
            return found
    return None


def _list_of_length(batch: Any, length: int) -> Any:
    """The list of per-sample things in a batch ``(images, targets)``, or the batch itself when it is one."""
    if isinstance(batch, (list, tuple)) and batch:
        for candidate in (batch[0], batch):
            if isinstance(candidate, (list, tuple)) and len(candidate) == length:
                return candidate
    return None


def _declared_size(batch: Any) -> int | None:
    """Graph batches and the like carry their own count."""
    for name in ("num_graphs", "batch_size"):
        value = getattr(batch, name, None)
        if isinstance(value, int):
            return value
    return len(batch) if isinstance(batch, (list, tuple)) else None
