"""What a job tells while it runs: the reports of its processes, and the lines that it prints."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vivace.protocol.chaos import REPORTS, ChaosReport, Told

__all__ = ["Lines", "Reports", "Trouble", "straggler_of"]

# What jobs, launchers and libraries say when something is wrong. A line counts only if its like was not printed before
# the fault: a script may print "error 0.31" in every step.
_TROUBLE = re.compile(
    r"traceback|error|exception|\bnan\b|\binf\b|not a number|not finite|no space|too large|kill|signal|abort|fail"
    r"|timed? ?out|hung|hang|stall|straggl|slow|damaged|corrupt|is gone|said nothing|not saved|lost|unreachable",
    re.IGNORECASE,
)
_STEP = re.compile(r"\b(?:global[ _])?(?:step|iter(?:ation)?)s?\b\W{0,4}(\d+)", re.IGNORECASE)
_DIGITS = re.compile(r"0x[0-9a-f]+|[-+]?\d[\d.,]*(?:e[-+]?\d+)?|\bnan\b|\binf\b", re.IGNORECASE)
_LONGEST = 300
_MOST_SHAPES = 100_000


class Reports:
    """Reads the files of a folder as they grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {}
        self.seen: list[ChaosReport] = []

    def look(self) -> list[ChaosReport]:
        """What is new."""
        new = []
        for path in sorted(self.folder.glob(REPORTS)):
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _torn = file.read().rpartition(b"\n")
                self._read[path] = self._read.get(path, 0) + len(whole) + len(newline)
                for line in whole.splitlines():
                    with contextlib.suppress(ValueError):
                        new.append(ChaosReport.from_text(line.decode()))
        self.seen += new
        return new

    def fault(self) -> ChaosReport | None:
        return next((report for report in self.seen if report.told is Told.FAULT), None)

    def steps(self) -> list[ChaosReport]:
        return [report for report in self.seen if report.told is Told.STEP]

    def ranks(self) -> list[int]:
        return sorted({report.rank for report in self.steps()})

    def last_step_at(self) -> float | None:
        return max((report.at for report in self.steps()), default=None)


@dataclass(frozen=True)
class Trouble:
    text: str
    at: float


@dataclass
class Lines:
    """The job's output, line by line: the first word of trouble after the fault, and the steps it counts itself."""

    fault_at: float | None = None
    trouble: Trouble | None = None
    first_step: int | None = None
    last_step: int | None = None
    last_step_before_fault: int | None = None
    closed: bool = False
    """vivace is ending the job: what it says now is about that."""
    shapes: set[str] = field(default_factory=set)
    _candidates: list[Trouble] = field(default_factory=list)

    def feed(self, line: str) -> None:
        now = time.time()
        if found := _STEP.search(line):
            number = int(found[1])
            self.first_step = number if self.first_step is None else self.first_step
            self.last_step = number
            if self.fault_at is None or now < self.fault_at:
                self.last_step_before_fault = number
        shape = _DIGITS.sub("#", line)
        known = shape in self.shapes and not re.search(r"\bnan\b", line, re.IGNORECASE)
        if len(self.shapes) < _MOST_SHAPES:
            self.shapes.add(shape)
        if not known and not self.closed and _TROUBLE.search(line):
            self._candidates.append(Trouble(line.strip()[:_LONGEST], now))
            self._settle()

    def first_trouble(self) -> Trouble | None:
        """In a life without a fault of ours: the first line that looks like trouble."""
        return self._candidates[0] if self._candidates else None

    def struck(self, at: float) -> None:
        """The fault came then; its report may be read later than the first line about it."""
        self.fault_at = at
        self._settle()

    def _settle(self) -> None:
        if self.fault_at is not None and self.trouble is None:
            self.trouble = next((one for one in self._candidates if one.at >= self.fault_at), None)


def straggler_of(steps: Sequence[ChaosReport], among: range) -> tuple[int, float, float] | None:
    """(rank, how much later it arrives where ranks meet than the first one, the same of the slowest other rank), in ms.

    In a training of several ranks all steps take the same time: who makes the others wait shows where they do not wait
    for each other yet. Only steps ``among`` these count. By the clock of one machine; None with fewer than two ranks,
    or when nobody called ``backward``.
    """
    by_step: dict[int, dict[int, float]] = {}
    for report in steps:
        if report.arrived_at is not None and report.step in among:
            by_step.setdefault(report.step, {})[report.rank] = report.arrived_at
    ranks = sorted({report.rank for report in steps})
    whole = [times for times in by_step.values() if len(times) == len(ranks)]
    if len(ranks) < 2 or not whole:
        return None
    late = {
        rank: 1000 * statistics.median(times[rank] - min(times.values()) for times in whole) for rank in ranks
    }  # fmt: skip
    slowest = max(ranks, key=lambda rank: late[rank])
    return slowest, late[slowest], max(late[rank] for rank in ranks if rank != slowest)
