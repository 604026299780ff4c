"""The other ranks of this training, and how they agree: who started them decides.

A script that uses ``torch.distributed`` has them there. A script for one process that vivace splits over ranks
(``vivace run --ranks``) knows nothing of them: ``vivace.scale`` names them here with ``set_split_ranks``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from vivace.preemption.leaving import agreeing, initialized_distributed

__all__ = ["Peers", "find_peers", "set_split_ranks", "split_ranks"]


class Peers(Protocol):
    """Every rank calls the same functions in the same order."""

    @property
    def rank(self) -> int: ...

    def ask_most(self, value: int) -> Callable[[], int]:
        """Tell the others ``value``. What is returned waits for their answers and gives the largest of all."""

    def wait_for_all(self) -> None: ...


_split: Peers | None = None


def set_split_ranks(ranks: Peers | None) -> None:
    """This process is one of several ranks, and its script does not know it."""
    global _split
    _split = ranks


def split_ranks() -> Peers | None:
    return _split


def find_peers() -> Peers | None:
    """None where this process trains alone, or torch.distributed has not begun yet."""
    if _split is not None:
        return _split
    dist = initialized_distributed()
    return None if dist is None else _TorchPeers(dist)


class _TorchPeers:
    """The script's own ranks. A gloo group, also beside NCCL: the flag lives on the CPU and no GPU waits for it."""

    def __init__(self, dist: Any) -> None:
        self._dist, self._group = dist, dist.new_group(backend="gloo")
        agreeing.add(os.getpid())

    @property
    def rank(self) -> int:
        return int(self._dist.get_rank())

    def ask_most(self, value: int) -> Callable[[], int]:
        import torch

        flag = torch.tensor([value], dtype=torch.int32)
        work = self._dist.all_reduce(flag, op=self._dist.ReduceOp.MAX, group=self._group, async_op=True)

        def answer() -> int:
            work.wait()
            return int(flag.item())

        return answer

    def wait_for_all(self) -> None:
        self._dist.barrier(group=self._group)
