"""CPU threads: as many as the cores that the process may use, no more and no less."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.cores import usable_cores
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import compute_ms, on_gpu, step_ms
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_MUCH = 1.5  # fewer or more threads than cores by this factor


class Threads(Change):
    switchable = True

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument is not None and not (argument.isdecimal() and int(argument) > 0):
            raise ValueError(f"{argument!r} is not a number of threads")

    def environment(self) -> dict[str, str]:
        """For libraries that start threads of their own; torch itself is told in ``flags``."""
        return {"OMP_NUM_THREADS": self.argument} if self.argument else {}

    def flags(self) -> None:
        wanted = int(self.argument) if self.argument else _cores_for_this_process()
        if self.argument is None and self.done is None and torch.get_num_threads() == wanted:
            raise NotApplicable(f"torch already uses {wanted} threads")
        torch.set_num_threads(wanted)
        self.applied(f"{wanted} threads")


def _cores_for_this_process() -> int:
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, usable_cores() // int(ranks if ranks.isdecimal() and int(ranks) > 0 else 1))


def find(m: Measurement) -> Found | None:
    threads = m.structure.threads
    if on_gpu(m) or not threads:
        return None
    cpu = m.machine.cpu
    # Two threads of one core share its arithmetic units.
    cores = min(cpu.usable_cores, cpu.physical_cores or cpu.usable_cores)
    ranks = m.ranks_per_host
    wanted = max(1, int(cores / ranks))
    used, ideal = (threads, wanted) if threads < wanted else (wanted, threads)
    if ideal < _MUCH * used:
        return None
    saved = compute_ms(m) * (1 - used / ideal)
    says = (
        f"{threads} threads compute where {wanted} cores are free"
        if threads < wanted
        else f"{threads} threads take turns on {wanted} cores"
    )
    return Found(
        exposed_ms=saved,
        evidence={
            "threads": threads,
            "usable_cores": cpu.usable_cores,
            "ranks_on_the_host": ranks,
            "computing_ms": round(compute_ms(m), 3),
        },
        says=f"{says}: at most {saved:.1f} of {step_ms(m):.1f} ms per step",
        setting=f"threads={wanted}",
        by_hand=lines(str(wanted)),
        also_try=(f"threads={max(1, wanted // 2)}",) if wanted > 2 else (),
    )


def lines(threads: str) -> str:
    return f"torch.set_num_threads({threads})   # or: export OMP_NUM_THREADS={threads}"


PRACTICE = Practice(
    name="threads",
    title="as many CPU threads as cores",
    family="cpu",
    same_arithmetic=False,
    risk="rounding",
    source="PyTorch tuning guide, CPU: OMP_NUM_THREADS. DLO-JZ: cpus-per-task and threads must agree.",
    why=(
        "torch asks the machine for its cores, and does not see that a container or a Slurm job may use a few of "
        "them only: threads then take turns and wait for each other. torchrun sets OMP_NUM_THREADS=1 for every rank, "
        "which leaves cores idle. Sums over another number of threads are rounded in another order."
    ),
    by_hand="torch.set_num_threads(8)   # the cores that this process may use",
    find=find,
    change=Threads,
    argument="N",
    lines=lines,
    excludes=("affinity",),
    order=10,
)
