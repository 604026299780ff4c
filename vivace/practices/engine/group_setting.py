"""One setting of optimizers that already exist, changed in their parameter groups and put back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["GroupSetting"]


class GroupSetting:
    """``foreach`` or ``fused``. Groups without that setting are left alone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.before: list[tuple[dict[str, Any], Any]] = []

    def set(self, optimizers: Iterable[Any], value: Any) -> None:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                if self.name in group:
                    self.before.append((group, group[self.name]))
                    group[self.name] = value

    def put_back(self) -> None:
        for group, value in self.before:
            group[self.name] = value
        self.before = []
