"""The ranks that save and load together, and the few things they tell each other.

On a gloo group of their own, also beside NCCL: a save in the background must not get between the collectives of the
training, and no GPU waits for a sentence. Alone (no torch.distributed) everything is trivial.
"""

from __future__ import annotations

import secrets
from typing import Any

__all__ = ["Ranks"]


class Ranks:
    """Make it on all ranks at the same place: it may create a process group."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist = dist if dist.is_available() and dist.is_initialized() else None
        self.group: Any = None
        self.rank, self.world = 0, 1
        if self._dist is not None:
            self.rank, self.world = self._dist.get_rank(), self._dist.get_world_size()
            self.group = self._dist.new_group(backend="gloo")
        self.token: str = self.from_first(secrets.token_hex(6))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self._dist is None

    def from_first(self, value: Any) -> Any:
        """Rank 0's value, on all ranks."""
        if self._dist is None or self.world == 1:
            return value
        held = [value]
        self._dist.broadcast_object_list(held, src=0, group=self.group)
        return held[0]

    def from_all(self, value: Any) -> list[Any]:
        """Every rank's value, on all ranks."""
        if self._dist is None or self.world == 1:
            return [value]
        held: list[Any] = [None] * self.world
        self._dist.all_gather_object(held, value, group=self.group)
        return held

    def close(self) -> None:
        if self._dist is not None and self.group is not None and self._dist.is_initialized():
            self._dist.destroy_process_group(self.group)
        self.group = None
