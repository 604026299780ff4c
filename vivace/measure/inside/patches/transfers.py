"""Host-to-device copies made by the training loop itself (not those inside a forward or a loader)."""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_compiling
from torch.overrides import handle_torch_function, has_torch_function_unary

from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.steps.recorder import Recorder

__all__ = ["goes_to_gpu", "install"]


def install(recorder: Recorder) -> None:
    """Only where there is a GPU to copy to: a CPU-only process keeps torch's own methods."""
    if not torch.cuda.is_available():
        return
    for name in ("to", "cuda"):
        setattr(torch.Tensor, name, _watched(recorder, getattr(torch.Tensor, name), always=name == "cuda"))


def _watched(recorder: Recorder, original: Any, always: bool) -> Any:
    def transfer(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # Subclasses compare the function they are handed with ``torch.Tensor.to``, which is now this one.
        if type(self) is not torch.Tensor and has_torch_function_unary(self):
            return handle_torch_function(transfer, (self,), self, *args, **kwargs)
        # is_cuda and is_cpu are plain flags; asking for more (is_pinned) would start CUDA in a forked worker.
        if recorder.inside or not recorder.armed or is_compiling() or not self.is_cpu or not recorder.here():
            return original(self, *args, **kwargs)
        if not always and not goes_to_gpu(*args, **kwargs):
            return original(self, *args, **kwargs)
        recorder.mark("copy+")
        try:
            return original(self, *args, **kwargs)
        finally:
            recorder.mark("copy-")

    return in_place_of(original, transfer)


def goes_to_gpu(*args: Any, **kwargs: Any) -> bool:
    """Whether ``tensor.to(…)`` names a GPU: by device, by name, by number, or by another tensor."""
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(target, torch.Tensor):
        return target.is_cuda
    if isinstance(target, torch.device):
        return target.type == "cuda"
    return (isinstance(target, str) and target.startswith("cuda")) or type(target) is int
