"""Trainings of ``loop.py`` on 1 or more ranks, and their sudden ends. Shared by the tests and the benchmarks."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conftest import environment
from forked.process import CHECKPOINTS, ForkedProcess

LOOP = Path(__file__).parent / "loop.py"
PATIENCE_S = 300.0


@dataclass
class Ended:
    codes: list[int]
    err: str
    """Of all ranks, one after another."""


class Life:
    """The ranks of one start of the training."""

    def __init__(
        self, folder: Path, steps: int, world: int = 1, options: Sequence[str] = (), script: Path = LOOP
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._errors = [tempfile.TemporaryFile("w+") for _ in range(world)]  # noqa: SIM115
        meeting = tempfile.mktemp(prefix="meeting-", dir=folder)
        self.ranks = [
            ForkedProcess(
                [sys.executable, str(script), str(folder), str(steps), *options],
                environment(RANK=str(rank), WORLD_SIZE=str(world), MEETING=meeting, FORKED_IMPORTS=CHECKPOINTS),
                folder,
                stdout=self._errors[rank].fileno(),
                stderr=self._errors[rank].fileno(),
            )
            for rank in range(world)
        ]

    def wait(self, patience_s: float = PATIENCE_S) -> Ended:
        """To the end of all ranks; those that do not end are killed (-9 among the codes)."""
        until = time.monotonic() + patience_s
        codes = []
        for rank in self.ranks:
            try:
                codes.append(rank.wait(max(0.1, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                rank.kill()
                codes.append(rank.wait())
        said = [(file.seek(0), file.read(), file.close())[1] for file in self._errors]
        return Ended(codes, "\n".join(said))

    def kill(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self.ranks[rank].send_signal(signal.SIGKILL)

    def is_over(self) -> bool:
        return any(rank.poll() is not None for rank in self.ranks)


def losses(folder: Path) -> list[str]:
    """The lines of all lives; the last one may be torn by a kill."""
    path = folder / "losses.txt"
    return path.read_text().splitlines() if path.exists() else []


def by_step(lines: Sequence[str]) -> dict[int, set[str]]:
    """What was printed for each step, over all lives: one text for a step that was repeated exactly."""
    found: dict[int, set[str]] = {}
    for line in lines:
        words = line.split()
        if len(words) == 4:
            found.setdefault(int(words[0]), set()).add(line)
    return found


@dataclass
class Kill:
    life: int
    ranks: tuple[int, ...]
    reached: int
    """The last step before the kill."""
    resumed: int | None = None
    """The first step of the next life; None if that was killed before its first step."""


def kill_again_and_again(
    folder: Path, steps: int, world: int, kills: int, seed: int, options: Sequence[str] = ()
) -> tuple[list[Kill], list[Ended]]:
    """Start, SIGKILL at a random moment (one rank or all of them), start again; at last to the end."""
    dice, done, ends = random.Random(seed), [], []
    for life in range(kills):
        before = len(losses(folder))
        training = Life(folder, steps, world, options)
        wanted, more_s = before + dice.randrange(0, 14), dice.uniform(0, 0.06)
        until = time.monotonic() + PATIENCE_S
        while len(losses(folder)) < wanted and not training.is_over() and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(more_s)
        victims = tuple(range(world)) if dice.random() < 0.5 else (dice.randrange(world),)
        training.kill(victims)
        ends.append(training.wait(60.0))
        _drop_torn_line(folder)
        _note_resumed(done, losses(folder), before)
        lines = [line for line in losses(folder) if line != "done"]
        if len(lines) < len(losses(folder)):  # it was faster than the kill
            break
        done.append(Kill(life, victims, int(lines[-1].split()[0]) if lines else -1))
    before = len(losses(folder))
    ends.append(Life(folder, steps, world, options).wait())
    _note_resumed(done, losses(folder), before)
    return done, ends


def _note_resumed(done: Sequence[Kill], lines: Sequence[str], before: int) -> None:
    if done and len(lines) > before and lines[before] != "done":
        done[-1].resumed = int(lines[before].split()[0])


def _drop_torn_line(folder: Path) -> None:
    path = folder / "losses.txt"
    if path.exists():
        text = path.read_text()
        path.write_text(text[: text.rfind("\n") + 1])
