"""Debugging switches as they stand during the training itself: a context around the backward is over when we report."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch

from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.places import user_place
from vivace.measure.inside.steps.recorder import Recorder

__all__ = ["Debugging", "install"]

_PROFILERS = {"NVTX": "emit_nvtx", "ITT": "emit_itt", "KINETO": "profiler", "LEGACY": "profiler"}


class Debugging:
    """``on``: names that a person would look for; ``where``: the line that switched each of them on, if one did."""

    def __init__(self) -> None:
        self.on: set[str] = set()
        self.where: dict[str, dict[str, Any]] = {}

    def note_place(self, name: str) -> None:
        with contextlib.suppress(Exception):  # a place is not worth a script's crash
            if name not in self.where and (place := user_place(2)) is not None:
                self.where[name] = place

    def look(self, our_profiler: bool = False) -> None:
        if torch.is_anomaly_enabled():
            self.on.add("anomaly detection")
        if torch.are_deterministic_algorithms_enabled():
            self.on.add("deterministic algorithms")
        profiler = torch._C._autograd._profiler_type().name
        if profiler in _PROFILERS and not our_profiler:
            self.on.add(_PROFILERS[profiler])
        if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
            self.on.add("CUDA_LAUNCH_BLOCKING")
        if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() in ("DETAIL", "INFO"):
            self.on.add("TORCH_DISTRIBUTED_DEBUG")


def install(recorder: Recorder) -> Debugging:
    debugging = Debugging()
    for name in ("gradcheck", "gradgradcheck"):
        _watch_checks(recorder, debugging, name)
    for function, name in (
        ("set_anomaly_enabled", "anomaly detection"),
        ("use_deterministic_algorithms", "deterministic algorithms"),
    ):
        _watch_switch(debugging, function, name)
    return debugging


def _watch_switch(debugging: Debugging, function: str, name: str) -> None:
    original = getattr(torch, function)

    def switch(*args: Any, **kwargs: Any) -> Any:
        if next(iter((*args, *kwargs.values())), False):
            debugging.note_place(name)
        return original(*args, **kwargs)

    setattr(torch, function, in_place_of(original, switch))


def _watch_checks(recorder: Recorder, debugging: Debugging, name: str) -> None:
    original = getattr(torch.autograd, name)

    def check(*args: Any, **kwargs: Any) -> Any:
        if recorder.here():  # in the loop: one before the training is a test, and rightly there
            debugging.on.add(name)
            debugging.note_place(name)
        return original(*args, **kwargs)

    setattr(torch.autograd, name, in_place_of(original, check))
