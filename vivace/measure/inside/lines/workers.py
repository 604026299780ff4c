"""Lines of the data set, as its workers see them: sampled in each worker while the training samples its own lines.

The training opens a folder before it starts workers and names it in the environment, so that forked and spawned ones
find it. A byte in it says whether to sample: one look at shared memory per batch. Each worker leaves its sums there.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import mmap
import os
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import CodeType
from typing import Any

from vivace.measure.inside.lines.charging import Segment, charge
from vivace.measure.inside.lines.sampler import LineSampler
from vivace.measure.inside.lines.seen import lines_of
from vivace.protocol.sampling import SeenLine, SeenWorkers

__all__ = ["FETCH", "WorkerLines", "WorkerSwitch"]

FETCH = "fetch"
_VARIABLE = "VIVACE_WORKER_LINES"
_PERIOD_NS = 2_000_000
_WRITE_S = 0.2
_MOST_LINES = 60


class WorkerSwitch:
    """The training's side."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._byte: mmap.mmap | None = None
        self._pid = os.getpid()

    def prepare(self) -> None:
        """Before workers are started. Where it cannot be, they are not sampled."""
        if self.folder is not None and self._pid == os.getpid():
            return
        with contextlib.suppress(OSError, ValueError):
            self._pid = os.getpid()
            self.folder = Path(tempfile.mkdtemp(prefix="vivace-lines-"))
            self._byte = _byte_of(self.folder, make=True)
            os.environ[_VARIABLE] = str(self.folder)
            atexit.register(self.close)

    def turn(self, on: bool) -> None:
        if self._byte is not None and self._pid == os.getpid():
            self._byte[0] = int(on)

    def collect(self) -> SeenWorkers | None:
        """What the workers have left, and the folder is gone."""
        if self.folder is None or self._pid != os.getpid():
            return None
        told = []
        for path in self.folder.glob("worker-*.json"):
            with contextlib.suppress(OSError, ValueError):
                told.append(json.loads(path.read_text()))
        self.close()
        return _together(told)

    def close(self) -> None:
        """Workers that write later find no folder, and write nothing."""
        if self.folder is not None and self._pid == os.getpid():
            shutil.rmtree(self.folder, ignore_errors=True)


class WorkerLines:
    """A worker's side: ``fetched`` around every batch that it makes."""

    def __init__(self) -> None:
        self._byte: mmap.mmap | None = None
        self._folder = os.environ.get(_VARIABLE)
        self._sampler: LineSampler | None = None
        self._fetches: list[Segment] = []
        self._written_s = 0.0
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._byte = _byte_of(Path(self._folder or ""), make=False)

    @property
    def wanted(self) -> bool:
        return self._byte is not None and (self._byte[0] == 1 or self._sampler is not None)

    def fetched(self, fetch: Any, bottom: CodeType) -> Any:
        assert self._byte is not None
        if self._sampler is None:
            self._sampler = LineSampler(_PERIOD_NS, bottom, beside=False)
            self._sampler.begin()
            self._written_s = time.perf_counter()
        began_ns = time.perf_counter_ns()
        try:
            return fetch()
        finally:
            self._fetches.append((began_ns, time.perf_counter_ns(), FETCH))
            with contextlib.suppress(Exception):  # whatever it is, the training needs its batch
                self._tell(over=self._byte[0] == 0)

    def _tell(self, over: bool) -> None:
        sampler = self._sampler
        assert sampler is not None
        if over:
            sampler.finish()
        if not over and time.perf_counter() - self._written_s < _WRITE_S:
            return
        self._written_s = time.perf_counter()
        charges = charge(sampler.samples, sampler.collections, sampler.began_ns, sampler.period_ns, self._fetches)
        lines = [line for line in lines_of(charges, len(self._fetches), None) if line.phase == FETCH]
        spent = sum(stop - start for start, stop, _ in self._fetches)
        told = {
            "fetches": len(self._fetches),
            "fetch_ms": spent / 1e6 / len(self._fetches),
            "busy": spent / max(1, self._fetches[-1][1] - sampler.began_ns),
            "lines": [asdict(line) for line in sorted(lines, key=lambda line: -line.ms)[:_MOST_LINES]],
        }
        _write(Path(self._folder or "") / f"worker-{os.getpid()}.json", json.dumps(told))
        if over:
            self._sampler, self._fetches = None, []


def _byte_of(folder: Path, make: bool) -> mmap.mmap:
    with open(folder / "on", "w+b" if make else "r+b") as file:
        if make:
            file.write(b"\0")
            file.flush()
        return mmap.mmap(file.fileno(), 1)


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def _together(told: list[dict[str, Any]]) -> SeenWorkers | None:
    """Means over batches, whichever worker made them."""
    batches = sum(one["fetches"] for one in told)
    if not batches:
        return None
    sums: dict[tuple[Any, ...], SeenLine] = {}
    for one in told:
        for fields in one["lines"]:
            line = SeenLine(**fields)
            share = one["fetches"] / batches
            key = (line.file, line.first_line, line.line, line.via, line.near, line.leaf)
            before = sums.get(key)
            times = {
                name: share * getattr(line, name) + (getattr(before, name) if before is not None else 0.0)
                for name in ("ms", "waiting_ms", "no_core_ms", "samples")
            }
            sums[key] = SeenLine(**{**fields, **times})
    return SeenWorkers(
        workers=len(told),
        batches=batches,
        batch_ms=sum(one["fetches"] * one["fetch_ms"] for one in told) / batches,
        busy=sum(one["busy"] for one in told) / len(told),
        lines=sorted(sums.values(), key=lambda line: -line.ms)[:_MOST_LINES],
    )
