"""How many samples and tokens a batch holds, read from shapes only: no sync, no copy, never an error."""

from __future__ import annotations

from typing import Any

__all__ = ["batch_size_of", "describe_inputs"]

_DEPTH = 4  # batches are tuples of dicts of tensors; deeper nesting is not a batch


def batch_size_of(batch: Any, asked: int | None = None) -> int | None:
    """The number of samples in what a DataLoader yielded. ``asked`` is the loader's own ``batch_size``.

    The first tensor's first dimension, unless the loader's batch size is found elsewhere: in the second dimension
    (time-first sequences) or as the length of a list (detection: one tensor per image).
    """
    first = _first_tensor(batch)
    if first is None:
        return _declared_size(batch)
    shape = tuple(first.shape)
    if asked and asked > 1 and (not shape or shape[0] != asked):
        if len(shape) > 1 and shape[1] == asked:
            return asked
        if _has_list_of_length(batch, asked):
            return asked
    return int(shape[0]) if shape else 1


def describe_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int | None]:
    """(samples, tokens) of a forward's inputs; tokens only where the input is a matrix of integer ids."""
    tensor = kwargs.get("input_ids")
    if tensor is None or not hasattr(tensor, "shape"):
        tensor = _first_tensor((args, kwargs))
    if tensor is None:
        return None, None
    samples = int(tensor.shape[0]) if tensor.dim() else 1
    is_ids = not tensor.is_floating_point() and not tensor.is_complex() and str(tensor.dtype) in _ID_DTYPES
    return samples, tensor.numel() if is_ids and tensor.dim() == 2 else None


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


def _has_list_of_length(value: Any, length: int, depth: int = 2) -> bool:
    if isinstance(value, (list, tuple)):
        if len(value) == length:
            return True
        return depth > 0 and any(_has_list_of_length(item, length, depth - 1) for item in value)
    return False


def _declared_size(batch: Any) -> int | None:
    """Graph batches and the like carry their own count."""
    for name in ("num_graphs", "batch_size"):
        value = getattr(batch, name, None)
        if isinstance(value, int):
            return value
    return len(batch) if isinstance(batch, (list, tuple)) else None
