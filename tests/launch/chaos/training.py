"""``examples/preemptible.py`` (or, split by vivace, ``split.py``) as a job of vivace's, and what its log and
checkpoint say from outside."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from launch.bench import ROOT, Bench
from launch.chaos.waiting import wait

__all__ = ["SAVE_STEPS", "STEPS", "Launcher", "Life", "Shape", "Training", "lives_in"]

QUICK = Path(__file__).with_name("quick.py")
EXAMPLE = ROOT / "examples" / "preemptible.py"
SPLIT = Path(__file__).with_name("split.py")
STEPS = 80
SAVE_STEPS = 10
_EVENT = re.compile(r"rank 0 of \d+ on \S+ begins at step (\d+)|step (\d+) rank 0 loss")
_LOSS = re.compile(r"step (\d+) rank (\d+) loss ([-+.0-9a-fxp]+)")


class Launcher(Enum):
    PLAIN = "plain"
    """``--once``: the command alone, without srun."""
    TORCHRUN = "torchrun"
    SRUN = "srun"
    NODES = "srun, two nodes"
    SPLIT = "vivace run --with ddp"
    """A script for one process, split over the ranks that srun starts."""


@dataclass(frozen=True)
class Shape:
    launcher: Launcher
    ranks: int

    @property
    def options(self) -> tuple[str, ...]:
        if self.launcher is Launcher.PLAIN:
            return ("--once",)
        if self.launcher is Launcher.TORCHRUN:
            return ("--gpus", str(self.ranks), "--gpus-per-task", str(self.ranks))
        if self.launcher is Launcher.NODES:  # a job on two nodes has them whole
            return ("--gpus", "8", "--gpus-per-task", str(8 // self.ranks))
        mode = ("--with", "ddp") if self.launcher is Launcher.SPLIT else ()
        return ("--gpus", str(self.ranks), *mode)

    @property
    def script(self) -> tuple[str, ...]:
        python = (sys.executable,)
        if self.launcher is Launcher.SPLIT:
            return (*python, str(SPLIT))
        if self.launcher is Launcher.TORCHRUN:
            python += ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}")
        return (*python, str(QUICK), str(EXAMPLE))

    @property
    def speakers(self) -> int:
        """The ranks whose words are in the log."""
        return 1 if self.launcher is Launcher.SPLIT else self.ranks


@dataclass(frozen=True)
class Life:
    """One start of the training: its first step, and the last one that its log shows (first - 1: none)."""

    first: int
    last: int


def lives_in(text: str) -> list[Life]:
    """
    >>> lives_in("rank 0 of 1 on a begins at step 0 step 0 rank 0 loss 1 rank 0 of 1 on a begins at step 1")
    [Life(first=0, last=0), Life(first=1, last=0)]
    """
    found: list[Life] = []
    for first, step in _EVENT.findall(text):
        if first:
            found.append(Life(int(first), int(first) - 1))
        elif found:
            found[-1] = Life(found[-1].first, max(found[-1].last, int(step)))
    return found


class Training:
    """Sent once, and again by its user when Slurm has given it up: the same command, the same checkpoint."""

    def __init__(self, bench: Bench, name: str, shape: Shape, options: Sequence[str] = (), step_s: float = 0.1) -> None:
        self.bench, self.name, self.shape, self.options, self.step_s = bench, name, shape, tuple(options), step_s
        self.records: list[dict[str, Any]] = []

    @property
    def checkpoint(self) -> Path:
        return self.bench.folder / f"{self.name}.pt"

    @property
    def job(self) -> str:
        return str(self.records[-1]["job_id"])

    @property
    def state_file(self) -> Path:
        """Where rank 0 of the present start says what it does (``vivace.preemption.job_files``)."""
        return Path(self.records[-1]["stdout"]).with_name(f"{self.job}.state")

    def send(self) -> None:
        words = ("--steps", str(STEPS), "--save-steps", str(SAVE_STEPS), "--step-seconds", str(self.step_s))
        command = (*self.shape.script, *words, "--checkpoint", str(self.checkpoint))
        options = ("--name", self.name, *self.shape.options, *self.options)
        wait("Slurm to take the job", lambda: self._send(options, command))

    def _send(self, options: Sequence[str], command: Sequence[str]) -> bool:
        """False while Slurm's controller does not answer."""
        try:
            self.records.append(self.bench.submit(*options, command=command))
        except AssertionError as error:
            if not any(word in str(error) for word in ("does not answer", "timed out", "Unable to contact")):
                raise
            return False
        return True

    def log(self, kind: str = "stdout") -> str:
        files = [Path(record[kind].replace("%j", record["job_id"])) for record in self.records]
        return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())

    def lives(self) -> list[Life]:
        return lives_in(self.log())

    def ranks_done(self) -> int:
        """How many ranks say so since the last start."""
        return len(re.findall(r"rank \d+ is done", re.split(r"rank 0 of \d+ on \S+ begins", self.log())[-1]))

    def losses(self) -> dict[tuple[int, int], set[str]]:
        """Exact ones by step and rank; a step that was trained twice must give the same."""
        found: dict[tuple[int, int], set[str]] = {}
        for step, rank, loss in _LOSS.findall(self.log()):
            found.setdefault((int(step), int(rank)), set()).add(loss)
        return found

    def saved(self) -> dict[str, Any] | None:
        """The newest checkpoint; None when there is none. An observer changes nothing: ``load_newest`` might."""
        import torch

        try:
            state: dict[str, Any] = torch.load(self.checkpoint, weights_only=True)
        except FileNotFoundError:
            return None
        return state

    def saved_step(self) -> int:
        state = self.saved()
        return 0 if state is None else int(state["step"])
