"""The script's own autocast, judged by its dtype and by whether it is on; and one of ours that stands in for it.

A script may enter autocast with ``enabled=False`` or with ``dtype=float32``, by its flags: that is no mixed precision.
Around a root's forward (a context, a decorator on the training step or on that forward) ours takes its place. What a
model enters further inside is left as it is: it protects a part that needs fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from vivace.practices.engine.torch_later import torch

__all__ = ["StandIn", "dtype_around", "of_forward"]

_WRAPPED = ("__func__", "__wrapped__")  # a bound method, a decorated function
_WRAPPERS = ("module", "_orig_mod")  # DistributedDataParallel's and torch.compile's name of what is inside
_DEEPEST = 16


def dtype_around(device: str) -> torch.dtype | None:
    """The dtype of the autocast that is on now; None where it is off."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def of_forward(root: torch.nn.Module, device: str) -> Any:
    """The ``torch.autocast`` that decorates a root's whole forward (``@torch.autocast(…)``, accelerate), or None."""
    for module in _with_inner(root):
        function: Any = module.forward
        for _ in range(_DEEPEST):
            found = _in_closure(function)
            if found is not None and found.device == device:
                return found
            inner = next((getattr(function, name) for name in _WRAPPED if hasattr(function, name)), None)
            if inner is None:
                break
            function = inner
    return None


def _with_inner(root: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for _ in range(_DEEPEST):
        yield root
        inner = next((root._modules[name] for name in _WRAPPERS if name in root._modules), None)
        if inner is None or len(root._modules) > 1:
            return
        root = inner


def _in_closure(function: Any) -> Any:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            if isinstance(cell.cell_contents, torch.autocast):
                return cell.cell_contents
        except ValueError:  # an empty cell
            continue
    return None


class StandIn:
    """Autocast inside one that the script has entered, perhaps for its whole loop.

    torch keeps casts of weights until the outermost autocast ends. They are dropped here at both ends: those of another
    dtype, and those of weights that an optimizer changes before the next forward.
    """

    def __init__(self, device: str, dtype: torch.dtype, enabled: bool = True) -> None:
        self.autocast = torch.autocast(device, dtype=dtype, enabled=enabled)

    def __enter__(self) -> None:
        torch.clear_autocast_cache()
        self.autocast.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.autocast.__exit__(kind, error, trace)
        torch.clear_autocast_cache()
