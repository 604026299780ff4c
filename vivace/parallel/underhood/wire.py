"""Messages between ranks, counted. All other files of this folder are made of what is here.

    wire = Wire()
    if wire.rank == 0:
        wire.send(tensor, to=1)
    if wire.rank == 1:
        wire.receive(tensor, source=0)

``send`` comes back when the other side has taken the message. So two ranks that both send first and receive later wait
for each other forever. ``exchange`` is the way out: it starts both and waits for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["Traffic", "Wire"]


@dataclass
class Traffic:
    """What one rank has sent."""

    messages: int = 0
    bytes: int = 0

    def add(self, tensor: torch.Tensor) -> None:
        self.messages += 1
        self.bytes += tensor.numel() * tensor.element_size()

    def clear(self) -> None:
        self.messages = self.bytes = 0


class Wire:
    """One rank among those of a group. Ranks are numbered within the group, from 0.

    ``ranks`` are the group's members by their number in the whole world; without it, everybody. A rank may be on
    several wires: with four ranks as two pairs, one wire for its pair and one across the pairs.
    """

    def __init__(self, ranks: Sequence[int] | None = None) -> None:
        self._world = list(range(dist.get_world_size())) if ranks is None else list(ranks)
        self.size = len(self._world)
        self.rank = self._world.index(dist.get_rank())
        self.sent = Traffic()

    @property
    def next(self) -> int:
        """The neighbour to the right on a ring."""
        return (self.rank + 1) % self.size

    @property
    def previous(self) -> int:
        return (self.rank - 1) % self.size

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """Blocking: comes back when the other rank has received it."""
        self.start_send(tensor, to).wait()

    def receive(self, into: torch.Tensor, source: int) -> torch.Tensor:
        """Blocking. ``into`` has the size of what comes; a message does not say its own."""
        self.start_receive(into, source).wait()
        return into

    def start_send(self, tensor: torch.Tensor, to: int) -> Any:
        """Comes back at once. Do not change ``tensor`` before ``wait()`` of the answer has come back."""
        assert tensor.is_contiguous(), "a message is one piece of memory"
        self.sent.add(tensor)
        return dist.isend(tensor, self._world[to])

    def start_receive(self, into: torch.Tensor, source: int) -> Any:
        """Comes back at once. Do not read ``into`` before ``wait()`` of the answer has come back."""
        assert into.is_contiguous(), "a message is one piece of memory"
        return dist.irecv(into, self._world[source])

    def exchange(self, tensor: torch.Tensor, to: int, into: torch.Tensor, source: int) -> torch.Tensor:
        """Send and receive at the same time: what everybody on a ring can do at once."""
        sending = self.start_send(tensor, to)
        receiving = self.start_receive(into, source)
        sending.wait()
        receiving.wait()
        return into
