"""Two ranks or more in forked processes, for tests: torch is imported once."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from vivace.scale.group import Group
from vivace.scale.place import ScalePlace

__all__ = ["on_ranks", "on_two_ranks", "run_forked"]


def on_two_ranks(work: Callable[[Group], Any]) -> list[Any]:
    return on_ranks(2, work)


def on_ranks(world: int, work: Callable[[Group], Any]) -> list[Any]:
    """What ``work`` returns on each of them. They meet by a file."""
    with tempfile.TemporaryDirectory() as folder:
        return run_forked(world, lambda rank: work(Group(ScalePlace(rank, world, f"file:{folder}"))))


def run_forked(world: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work(rank)`` returns in each of so many forked processes, through JSON."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        children, really_open = [], open
        for rank in range(world):
            child = os.fork()
            if child == 0:
                try:
                    answer = work(rank)
                    with really_open(f"{folder}/answer-{rank}", "w") as file:
                        json.dump(answer, file)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc(file=sys.__stderr__)
                    os._exit(1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * world
        return [json.loads(Path(folder, f"answer-{rank}").read_text()) for rank in range(world)]
