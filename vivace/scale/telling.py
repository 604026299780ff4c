"""Rank 0's report of the split training, left in the run's folder (``protocol/scale_report.py``).

Written after some steps and when the process ends. Exchanges are counted after the first steps only: in those, splits
are proved and the order of gradients is learned.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from vivace.protocol.scale_report import Gathered, ScaleReport
from vivace.scale.group import Group
from vivace.scale.rows import gathers

__all__ = ["Telling", "gradient_bytes"]

_FIRST_STEPS = 5
_WRITTEN_AT = (8, 16, 64)
_MOST_PLACES = 20


class Telling:
    """``seen``: the fields of the report that others know."""

    def __init__(self, group: Group, folder: str, seen: Callable[[], dict[str, Any]]) -> None:
        self.group, self.seen = group, seen
        self.steps = 0
        self._path = Path(folder) / f"scale-{os.getpid()}.json"
        self._pid, self._open, self._replace = os.getpid(), open, os.replace
        self._bytes_before = 0

    def install(self) -> None:
        def after_step(*_: Any) -> None:
            self.steps += 1
            if self.steps == _FIRST_STEPS:
                gathers.clear()
                self._bytes_before = self.group.bytes_sent
            elif self.steps in _WRITTEN_AT:
                self.write()

        after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
        register_optimizer_step_post_hook(after_step)
        atexit.register(self.write)

    def write(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child
        temporary = f"{self._path}.tmp"
        with contextlib.suppress(OSError):
            with self._open(temporary, "w", encoding="utf-8") as file:
                file.write(self.report().to_text())
            self._replace(temporary, self._path)

    def report(self) -> ScaleReport:
        largest = sorted(gathers.items(), key=lambda item: -item[1][1])[:_MOST_PLACES]
        return ScaleReport(
            world=self.group.world,
            steps=max(0, self.steps - _FIRST_STEPS),
            bytes_sent=self.group.bytes_sent - self._bytes_before,
            gathered=[Gathered(*place, calls=calls, bytes=size) for place, (calls, size) in largest],
            **self.seen(),
        )


def gradient_bytes(parameters: list[torch.Tensor | None]) -> int:
    return sum(each.numel() * each.element_size() for each in parameters if each is not None and each.requires_grad)
