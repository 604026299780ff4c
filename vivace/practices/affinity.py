"""Affinity: each rank of a host computes on cores of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import compute_ms, on_gpu
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_MUCH = 1.5


class Affinity(Change):
    """With as many threads. Right after ``import torch``: what OpenMP and the loaders start later inherits the cores.

    Not through OMP_PROC_BIND: it binds the main thread to one core, and loader workers would inherit that.
    """

    def flags(self) -> None:
        if self.done is not None:
            return
        rank = _number("LOCAL_RANK", "SLURM_LOCALID")
        ranks = _number("LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE")
        if not hasattr(os, "sched_setaffinity"):
            raise NotApplicable("this system cannot bind a process to cores")
        if rank is None or ranks is None or ranks < 2:
            raise NotApplicable("one process on this host: it may use all its cores already")
        cores = sorted(os.sched_getaffinity(0), key=_position)
        if len(cores) < ranks:
            raise NotApplicable(f"{len(cores)} cores for {ranks} ranks: they have to share")
        own = cores[rank * len(cores) // ranks : (rank + 1) * len(cores) // ranks]
        os.sched_setaffinity(0, own)
        torch.set_num_threads(len(own))
        self.applied(f"rank {rank} of {ranks} on {len(own)} of {len(cores)} cores")


def _number(*names: str) -> int | None:
    """torchrun's variable or Slurm's, which writes ``4(x2)`` for four tasks on each of two nodes."""
    for name in names:
        if match := re.fullmatch(r"(\d+)(\(x\d+\))?", os.environ.get(name, "")):
            return int(match[1])
    return None


def _position(core: int) -> tuple[int, int, int]:
    """Sockets one after the other; the two threads of a core side by side."""
    topology = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
    try:
        return int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text()), core
    except (OSError, ValueError):
        return 0, core, core


def find(m: Measurement) -> Found | None:
    """Ranks of one host that were all bound to the same few cores, while others are free."""
    if on_gpu(m) or len(m.ranks) < 2:
        return None
    here = [r for r in m.ranks if r.host == m.ranks[0].host and r.cores]
    if len(here) < 2 or len({r.cores for r in here}) > 1:
        return None
    shared, free = _count(here[0].cores or ""), m.machine.cpu.usable_cores
    wanted = min(free, len(here) * (m.structure.threads or 1))
    if wanted < _MUCH * shared:
        return None
    saved = compute_ms(m) * (1 - shared / wanted)
    return Found(
        exposed_ms=saved,
        evidence={"ranks_on_the_host": len(here), "cores_of_every_rank": here[0].cores, "usable_cores": free},
        says=f"{len(here)} ranks are bound to the same {shared} cores: at most {saved:.1f} ms per step",
        why_not="whoever starts the ranks binds them; a process cannot take more cores than it is given",
    )


def _count(cores: str) -> int:
    """
    >>> _count("0-3,8")
    5
    """
    spans = [span.partition("-") for span in cores.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


PRACTICE = Practice(
    name="affinity",
    title="cores of its own for each rank",
    family="cpu",
    same_arithmetic=False,
    risk="rounding",
    source="PyTorch tuning guide, CPU: bind ranks to cores. DLO-JZ: cpus-per-task.",
    why=(
        "Ranks that share cores push each other from them, and their memory lies on the other socket half of the time. "
        "The practice gives each rank an equal part of the cores that it may use. When a launcher bound all ranks "
        "to the same few cores, only the launcher can widen that: --cpus-per-task and --cpu-bind with srun."
    ),
    by_hand="srun --cpus-per-task=8 --cpu-bind=cores python train.py\nos.sched_setaffinity(0, cores_of_this_rank)",
    find=find,
    change=Affinity,
    excludes=("threads",),
    order=5,
)
