"""Recurrent cells that a script calls once for every position in time: counted in the one step that counts FLOPs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch

from vivace.measure.inside.places import user_place

__all__ = ["CellWatch"]


class CellWatch:
    """Between ``begin`` and ``finish``: how often each cell's forward ran, and the line that called it."""

    def __init__(self, roots: Iterable[torch.nn.Module]) -> None:
        modules = {id(module): module for root in roots for module in root.modules()}
        self._cells = [_Cell(module) for module in modules.values() if isinstance(module, torch.nn.RNNCellBase)]

    def begin(self) -> None:
        for cell in self._cells:
            cell.hook = cell.module.register_forward_pre_hook(cell.note)

    def finish(self) -> None:
        for cell in self._cells:
            cell.hook.remove()

    def as_list(self) -> list[dict[str, Any]]:
        return [cell.as_dict() for cell in self._cells if cell.calls]


class _Cell:
    def __init__(self, module: torch.nn.RNNCellBase) -> None:
        self.module = module
        self.calls = 0
        self.where: dict[str, Any] | None = None
        self.hook: Any = None

    def note(self, _module: torch.nn.Module, _args: Any) -> None:
        if torch.is_grad_enabled():  # a validation's calls are not the step's
            self.calls += 1
        if self.where is None:
            with contextlib.suppress(Exception):
                self.where = user_place(2)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": type(self.module).__name__,
            "inputs": self.module.input_size,
            "hidden": self.module.hidden_size,
            "calls": self.calls,
            "where": self.where,
        }
