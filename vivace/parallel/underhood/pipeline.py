"""Pipeline parallelism: the first layers on rank 0, the next on rank 1. A batch walks through the ranks and back.

With the whole batch at once (``naive``) one rank works and the others wait. Cut into m micro-batches, rank 0 begins
with the second while rank 1 has the first. What is left of the waiting is the bubble: (p - 1)/(m + p - 1) of the time
with p ranks.

- ``gpipe``: all forward passes, then all backward passes. Keeps the activations of m micro-batches.
- ``one_f_one_b``: a backward pass as soon as one is possible. The same bubble, but activations of at most p
  micro-batches.

A schedule is data: for each rank a list of (pass, micro-batch). ``draw`` makes a picture of it, ``Pipeline`` runs it.

Messages are started, not waited for: in 1F1B rank 0 sends activations to rank 1 while rank 1 sends gradients to rank 0,
and two blocking sends would wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import nn

from vivace.parallel.underhood.wire import Wire

__all__ = ["Job", "Pass", "Pipeline", "Schedule", "bubble", "draw", "gpipe", "naive", "one_f_one_b", "times"]


class Pass(Enum):
    FORWARD = "F"
    BACKWARD = "B"


class Job(NamedTuple):
    kind: Pass
    micro_batch: int


Schedule = Callable[[int, int, int], "list[Job]"]
"""Rank, ranks, micro-batches → what the rank does, in order."""


def gpipe(rank: int, ranks: int, micro_batches: int) -> list[Job]:
    """Huang et al., 2019."""
    forward = [Job(Pass.FORWARD, each) for each in range(micro_batches)]
    backward = [Job(Pass.BACKWARD, each) for each in range(micro_batches)]
    return forward + backward


def naive(rank: int, ranks: int, micro_batches: int) -> list[Job]:
    """Each micro-batch walks through all ranks and back before the next begins."""
    return [Job(kind, each) for each in range(micro_batches) for kind in Pass]


def one_f_one_b(rank: int, ranks: int, micro_batches: int) -> list[Job]:
    """Narayanan et al., 2019. Rank r begins with p - r forward passes; then one backward, one forward, in turn."""
    ahead = min(ranks - rank, micro_batches)
    jobs = [Job(Pass.FORWARD, each) for each in range(ahead)]
    for each in range(micro_batches):
        jobs.append(Job(Pass.BACKWARD, each))
        if ahead + each < micro_batches:
            jobs.append(Job(Pass.FORWARD, ahead + each))
    return jobs


class Pipeline:
    """This rank's layers of a model, and the messages to the ranks before and after."""

    def __init__(self, layers: nn.Module, wire: Wire, schedule: Schedule, boundary: torch.Size | None = None) -> None:
        """``boundary``: the shape of a micro-batch between two ranks. A message does not say its own shape."""
        self.layers, self.wire, self.schedule, self.boundary = layers, wire, schedule, boundary
        self.is_first, self.is_last = wire.rank == 0, wire.rank == wire.size - 1
        self._on_the_way: list[tuple[Any, torch.Tensor]] = []
        self.most_kept = 0  # micro-batches whose activations were in memory at the same time

    def step(
        self, inputs: torch.Tensor, targets: torch.Tensor, loss: Callable[..., torch.Tensor], micro_batches: int
    ) -> torch.Tensor | None:
        """One forward and backward pass of the batch: fills the gradients. Returns the loss on the last rank."""
        cut_inputs, cut_targets = inputs.chunk(micro_batches), targets.chunk(micro_batches)
        assert len(cut_inputs) == micro_batches, f"{len(inputs)} samples make no {micro_batches} micro-batches"
        kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        total = torch.zeros((), dtype=torch.float64)
        for kind, number in self.schedule(self.wire.rank, self.wire.size, micro_batches):
            if kind is Pass.FORWARD:
                entering = cut_inputs[number] if self.is_first else self._activations(len(cut_inputs[number]))
                leaving = self.layers(entering)
                if self.is_last:
                    leaving = loss(leaving, cut_targets[number]) * len(cut_targets[number]) / len(targets)
                    total += leaving.item()
                else:
                    self._send(leaving.detach(), to=self.wire.rank + 1)
                kept[number] = entering, leaving
                self.most_kept = max(self.most_kept, len(kept))
            else:
                self._backward(*kept.pop(number))
        for sent, _ in self._on_the_way:
            sent.wait()
        self._on_the_way.clear()
        return total if self.is_last else None

    def _activations(self, samples: int) -> torch.Tensor:
        assert self.boundary is not None
        dtype = next(self.layers.parameters()).dtype
        entering = torch.empty((samples, *self.boundary), dtype=dtype)
        return self.wire.receive(entering, source=self.wire.rank - 1).requires_grad_()

    def _backward(self, entering: torch.Tensor, leaving: torch.Tensor) -> None:
        if self.is_last:
            leaving.backward()
        else:
            leaving.backward(self.wire.receive(torch.empty_like(leaving), source=self.wire.rank + 1))
        if not self.is_first:
            assert entering.grad is not None
            self._send(entering.grad, to=self.wire.rank - 1)

    def _send(self, tensor: torch.Tensor, to: int) -> None:
        message = tensor.contiguous()
        self._on_the_way.append((self.wire.start_send(message, to), message))


def times(schedule: Schedule, ranks: int, micro_batches: int, backward: int = 2) -> list[dict[Job, int]]:
    """When each job begins, by rank, if a forward pass takes 1 and messages take no time.

    A job begins when its rank is free and its message is there: from the rank before (forward) or after (backward).
    """
    cost = {Pass.FORWARD: 1, Pass.BACKWARD: backward}
    jobs = [schedule(rank, ranks, micro_batches) for rank in range(ranks)]
    begins: list[dict[Job, int]] = [{} for _ in range(ranks)]
    free = [0] * ranks
    while any(jobs):
        moved = False
        for rank in range(ranks):
            if not jobs[rank]:
                continue
            job = jobs[rank][0]
            before = rank - 1 if job.kind is Pass.FORWARD else rank + 1
            needs_message = 0 <= before < ranks
            if needs_message and job not in begins[before]:
                continue
            arrives = begins[before][job] + cost[job.kind] if needs_message else 0
            begins[rank][job] = max(free[rank], arrives)
            free[rank] = begins[rank][job] + cost[job.kind]
            del jobs[rank][0]
            moved = True
        assert moved, "this schedule waits for itself"
    return begins


def bubble(schedule: Schedule, ranks: int, micro_batches: int, backward: int = 2) -> float:
    """The share of the ranks' time in which they wait."""
    begins = times(schedule, ranks, micro_batches, backward)
    length = max(when + (1 if job.kind is Pass.FORWARD else backward) for rank in begins for job, when in rank.items())
    return 1 - micro_batches * (1 + backward) / length


def draw(schedule: Schedule, ranks: int, micro_batches: int, backward: int = 2) -> str:
    """A line for each rank; a forward pass is its number, a backward pass its number in brackets, waiting a dot.

    >>> print(draw(gpipe, 2, 2))
    rank 0   0  1  .  .  . [ 0  ][ 1  ]
    rank 1   .  0  1 [ 0  ][ 1  ] .  .
    """
    lines = []
    begins = times(schedule, ranks, micro_batches, backward)
    length = max(when + (1 if job.kind is Pass.FORWARD else backward) for rank in begins for job, when in rank.items())
    for rank, jobs in enumerate(begins):
        cells = [" . "] * length
        for (kind, number), when in jobs.items():
            if kind is Pass.FORWARD:
                cells[when] = f"{number:^3}"
            else:
                cells[when : when + backward] = [f"[{number:^{3 * backward - 2}}]"] + [""] * (backward - 1)
        lines.append(f"rank {rank}  " + "".join(cells).rstrip())
    return "\n".join(lines)
