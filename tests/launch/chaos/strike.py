"""A fault, what is expected of a job that it hits, and the means to hit it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

from launch.chaos.processes import Role, processes
from launch.chaos.site import Site
from launch.chaos.training import Launcher, Training

__all__ = ["Expect", "Fault", "Happening", "Missed", "Strike"]


class Missed(Exception):
    """There was nothing to hit at this moment: the job was between two lives, or had just ended."""


class Expect(Enum):
    """What the documentation promises. Whatever is expected, nothing before the last periodic save may be lost."""

    UNTOUCHED = "goes on"
    SAVES = "saves, is requeued, loses nothing"
    TERMINATES = "the same; after the training is done it ends torchrun as ever"
    REQUEUED = "is requeued by Slurm"
    CRASHES = "ends, and is tried again where that was asked for"
    ANY = "only the general laws"


@dataclass
class Strike:
    """One fault as it hits one training."""

    site: Site
    training: Training
    dice: random.Random

    @property
    def job(self) -> str:
        return self.training.job

    def one(self, role: Role) -> int:
        ids = processes(self.site.cluster, self.job)[role]
        if not ids:
            raise Missed(role.value)
        return self.dice.choice(ids) if role is Role.RANK else ids[0]

    def kill(self, role: Role, number: signal.Signals) -> None:
        try:
            os.kill(self.one(role), number)
        except ProcessLookupError as error:
            raise Missed(role.value) from error

    def await_listening(self) -> None:
        """A process that still imports dies of SIGTERM, as any does: rank 0 of this start says that it listens."""
        if not self.training.state_file.exists() or not self.training.lives():
            raise Missed("a rank that listens")

    def warn(self) -> None:
        """As Slurm does before the time limit, also while its controller is not there to do it."""
        self.one(Role.RANK)  # else the script's trap may not be there yet
        self.kill(Role.SCRIPT, signal.SIGUSR1)

    def node(self) -> int:
        number = self.site.node_of(self.job)
        if not number or self.site.state(self.job) != "RUNNING":
            raise Missed("node")
        return number

    def slurm(self, *words: str) -> None:
        if self.site.cluster.run(*words, check=False).returncode != 0:
            raise Missed(words[0])

    def hold(self, least_s: float = 1.0, most_s: float = 5.0) -> None:
        time.sleep(self.dice.uniform(least_s, most_s))


Happening = Callable[[Strike], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    name: str
    expect: Expect
    happens: Happening
    launchers: frozenset[Launcher] = frozenset(Launcher)
    options: tuple[str, ...] = ()
    """What the job must be sent with."""
    weight: int = 2
    needs_disk: bool = False
    silences: bool = False
    """Slurm does not answer while it lasts."""
    slow: bool = False
    """Slurm's own clocks take their time over it: the steps of the job must last longer."""
