"""The workers of a study on this machine: processes that ``vivace hpo`` starts, watches, replaces and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vivace.hpo.asked import Asked, EngineName
from vivace.records.base import last_line

__all__ = ["Team", "environments", "join_command"]

_QUICK_S = 10.0
_MOST_QUICK_DEATHS = 5  # in a row, of one worker: something is wrong with the machine or with vivace
_POLITE_S = 20.0
_LOG_TAIL = 4096


def join_command(folder: Path) -> list[str]:
    """What a worker runs: by this Python, in whatever folder."""
    return [sys.executable, "-m", "vivace", "hpo", "--join", str(folder.absolute())]


class Team:
    """``start`` all; ``look`` replaces those that were killed; ``stop`` gives their trials back and ends them."""

    def __init__(self, folder: Path, asked: Asked, gpus: Sequence[str], cores: int) -> None:
        self._folder = folder
        if asked.engine is EngineName.RAY:  # one process leads Ray, which places the trials
            self._environments = [dict(os.environ)]
        else:
            self._environments = environments(asked.workers, asked.gpus_per_trial, gpus, cores, os.environ)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, float] = {}
        self._quick_deaths: dict[int, int] = {}

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Team]:
        try:
            for slot in range(len(self._environments)):
                self._start(slot)
            yield self
        finally:
            self.stop()

    def look(self) -> list[str]:
        """What to tell about workers that died since the last look."""
        told = []
        for slot, process in list(self._processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self._processes[slot]
            if code == 0:
                continue
            quick = time.monotonic() - self._started[slot] < _QUICK_S
            self._quick_deaths[slot] = self._quick_deaths.get(slot, 0) + 1 if quick else 0
            why = f"by signal {-code}" if code < 0 else f"with exit code {code}: {self._last_words(slot)}"
            if self._quick_deaths[slot] < _MOST_QUICK_DEATHS:
                told.append(f"worker {slot} ended {why}; it is replaced, and its trial is queued again")
                self._start(slot)
            else:
                told.append(f"worker {slot} ended {why}, {_MOST_QUICK_DEATHS} times in a row; it is not replaced")
        return told

    @property
    def is_at_work(self) -> bool:
        return bool(self._processes)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def stop(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _POLITE_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start(self, slot: int) -> None:
        self._log(slot).parent.mkdir(exist_ok=True)
        with open(self._log(slot), "ab") as log:
            self._processes[slot] = subprocess.Popen(
                join_command(self._folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environments[slot], start_new_session=True,
            )  # fmt: skip
        self._started[slot] = time.monotonic()

    def _log(self, slot: int) -> Path:
        return self._folder / "workers" / f"{slot}.log"

    def _last_words(self, slot: int) -> str:
        try:
            with open(self._log(slot), "rb") as file:
                file.seek(max(0, file.seek(0, 2) - _LOG_TAIL))
                return last_line(file.read().decode(errors="replace"))
        except OSError:
            return ""


def environments(
    workers: int, gpus_per_trial: int, gpus: Sequence[str], cores: int, base: Mapping[str, str]
) -> list[dict[str, str]]:
    """One for each worker: its GPUs, and its share of the cores, which parallel trials would otherwise all take.

    >>> [one["CUDA_VISIBLE_DEVICES"] for one in environments(2, 2, ["0", "1", "2", "3"], 8, {})]
    ['0,1', '2,3']
    >>> environments(4, 0, [], 8, {})[0]["OMP_NUM_THREADS"]
    '2'
    """
    made = []
    for slot in range(workers):
        own = dict(base)
        if gpus_per_trial and gpus:
            first = slot * gpus_per_trial
            own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[(first + n) % len(gpus)] for n in range(gpus_per_trial))
        if workers > 1:
            own.setdefault("OMP_NUM_THREADS", str(max(1, cores // workers)))
        made.append(own)
    return made
