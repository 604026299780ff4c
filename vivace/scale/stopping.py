"""How the ranks of a split training agree to save and to stop: told to ``vivace.preemption``, which the script may use.

The script was written for one process. Each rank runs all of it, hears its own signals and reads its own clock; without
this, one rank would stop while the others wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from vivace.preemption.leaving import agreeing
from vivace.preemption.peers import set_split_ranks
from vivace.scale.group import Group

__all__ = ["stop_together"]


def stop_together(group: Group) -> None:
    set_split_ranks(_SplitRanks(group))


class _SplitRanks:
    """``vivace.preemption.peers.Peers``. Its group is made when it is first needed: most scripts never do."""

    def __init__(self, group: Group) -> None:
        self.rank = group.rank
        self._group, self._pid = group, os.getpid()
        self._made: Any = None

    @property
    def _beside(self) -> Any:
        if self._made is None:
            self._made = self._group.beside("stopping")
            agreeing.add(self._pid)
        return self._made

    def ask_most(self, value: int) -> Callable[[], int]:
        flag, options = torch.tensor([value], dtype=torch.int32), dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]
        work = self._beside.allreduce([flag], options)

        def answer() -> int:
            work.wait()
            return int(flag.item())

        return answer

    def wait_for_all(self) -> None:
        self._beside.barrier().wait()
