"""Survive a time limit, a preemption or a dead node: save, have the job started again, go on from the checkpoint::

    guard = Preemption(save_every_minutes=10)
    state = load_newest("last.pt")                           # None the first time
    for step in range(first_step, last_step):
        ...
        if guard.should_save():                              # all ranks answer alike, at the same step
            if rank == 0:                                    # or every rank, each with its own file
                save_atomically(state, "last.pt", keep=2)
            if guard.stopping:
                guard.requeue_and_exit()

Runs in the user's training process: standard library and torch only, Python 3.9.

``guard`` has the signals and the agreement of the ranks, ``checkpoint`` the files, ``requeueing`` the talk with Slurm,
``peers`` the other ranks, ``job_files`` the talk with vivace's job script, ``leaving`` the last moments of a rank.
"""

from __future__ import annotations

from vivace.preemption.checkpoint import CheckpointError, load_newest, save_atomically
from vivace.preemption.guard import Preemption, protect_worker
from vivace.preemption.requeueing import EXIT_INTERRUPTED, job_id, requeue

__all__ = [
    "EXIT_INTERRUPTED", "CheckpointError", "Preemption", "job_id", "load_newest", "protect_worker", "requeue",
    "save_atomically",
]  # fmt: skip
