"""Collectives that the training loop calls itself (averaging gradients or metrics by hand)."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.compiler import is_compiling

from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.steps.recorder import Recorder

__all__ = ["install"]

_NAMES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "broadcast", "all_to_all", "all_to_all_single", "barrier",
)  # fmt: skip


def install(recorder: Recorder) -> None:
    if not torch.distributed.is_available():
        return
    for name in _NAMES:
        original = getattr(dist, name)
        watched = _watched(recorder, original)
        setattr(dist, name, watched)
        setattr(sys.modules[original.__module__], name, watched)  # where it is defined: it pickles by that name


def _watched(recorder: Recorder, original: Any) -> Any:
    def collective(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not recorder.here():
            return original(*args, **kwargs)
        recorder.mark("comm+")
        try:
            return original(*args, **kwargs)
        finally:
            recorder.mark("comm-")

    return in_place_of(original, collective)
