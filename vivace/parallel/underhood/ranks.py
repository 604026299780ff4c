"""Starts N processes on this machine that can talk to each other, for the demonstrations, the labs and the tests.

    def hello(wire):
        return wire.rank * 10

    on_ranks(hello, 4)      # [0, 10, 20, 30]

The processes are forked, so a function of a notebook works. Fork before this process has run a backward pass: torch
refuses one in a child otherwise.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from vivace.parallel.underhood.wire import Wire

__all__ = ["RankFailed", "on_ranks"]

_TIMEOUT_S = 600.0


class RankFailed(RuntimeError):
    """A rank raised; the text is its traceback."""


def on_ranks(function: Callable[[Wire], Any], ranks: int, timeout_s: float = _TIMEOUT_S) -> list[Any]:
    """Call ``function(wire)`` in that many processes; their answers, by rank. The first failure ends all."""
    processes = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="vivace-ranks-") as folder:
        children: list[tuple[Any, Connection]] = []
        for rank in range(ranks):
            here, there = processes.Pipe(duplex=False)
            place = (rank, ranks, Path(folder, "meet"), timeout_s)
            child = processes.Process(target=_rank, args=(function, place, there))
            child.start()
            children.append((child, here))
        try:
            return _collect(children)
        finally:
            for child, _ in children:
                child.kill()
                child.join()


def _collect(children: list[tuple[Any, Connection]]) -> list[Any]:
    found: dict[int, Any] = {}
    while len(found) < len(children):
        waiting = {rank: child for rank, child in enumerate(children) if rank not in found}
        wait([each for process, pipe in waiting.values() for each in (process.sentinel, pipe)])
        for rank, (process, pipe) in waiting.items():
            if pipe.poll():
                found[rank], error = pipe.recv()
                if error:
                    raise RankFailed(f"rank {rank} failed:\n{error}")
            elif not process.is_alive() and not pipe.poll():
                raise RankFailed(f"rank {rank} ended without an answer (exit code {process.exitcode})")
    return [found[rank] for rank in range(len(children))]


def _rank(function: Callable[[Wire], Any], place: tuple[int, int, Path, float], answer: Connection) -> None:
    rank, ranks, meet, timeout_s = place
    try:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
        store = dist.FileStore(str(meet), ranks)
        timeout = timedelta(seconds=timeout_s)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
        answer.send((function(Wire()), None))
        dist.barrier()  # nobody leaves while another still listens
    except BaseException:
        answer.send((None, traceback.format_exc()))
