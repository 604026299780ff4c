"""Follows the journals that the processes of a run keep (``protocol/journal.py``): its clock, its steps, its energy."""

from __future__ import annotations

import bisect
import os
from pathlib import Path

from vivace.protocol.journal import JOURNAL, Kind, Note, fingerprint

__all__ = ["Journal"]

_MOST_A_POLL = 8 << 20


class Journal:
    """All that the run in ``folder`` has noted so far; ``read`` takes what is new. Steps: those of the first rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun_at: float | None = None
        self._offsets: dict[str, int] = {}
        self._steps: dict[str, list[Note]] = {}
        self._compiled: dict[str, list[Note]] = {}
        self._energy: dict[str, list[Note]] = {}
        self._printed: dict[int, list[Note]] = {}

    def read(self) -> None:
        for path in sorted(self.folder.glob(JOURNAL)):
            with open(path, "rb") as file:
                data = os.pread(file.fileno(), _MOST_A_POLL, self._offsets.get(path.name, 0))
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path.name] = self._offsets.get(path.name, 0) + len(whole)
            for line in whole.decode().splitlines():
                self._take(path.name, Note.from_line(line))

    def _take(self, name: str, note: Note) -> None:
        if note.kind is Kind.BEGIN:
            self.begun_at = note.at if self.begun_at is None else min(note.at, self.begun_at)
        elif note.kind is Kind.PRINTED:
            self._printed.setdefault(note.line, []).append(note)
        else:
            by_kind = {Kind.STEP: self._steps, Kind.COMPILED: self._compiled, Kind.ENERGY: self._energy}
            by_kind[note.kind].setdefault(name, []).append(note)

    def printed_at(self, line: str, before: float) -> float | None:
        """When the process printed ``line``, which was read at ``before``; None: not by ``print``."""
        notes = [note.at for note in self._printed.get(fingerprint(line), ()) if note.at <= before]
        return max(notes, default=None)

    def steps_at(self, at: float) -> tuple[int | None, int | None]:
        """(steps, samples) that were done at ``time.time() == at``; None: not known."""
        notes = max(self._steps.items(), key=lambda item: (-_rank(item[0]), len(item[1])), default=("", []))[1]
        place = bisect.bisect_right(notes, at, key=lambda note: note.at)
        if not notes:
            return None, None
        return (notes[place - 1].steps, notes[place - 1].samples) if place else (0, None)

    def compiling_s(self, until: float) -> float:
        """Spent in ``torch.compile`` between the beginning and then, by the process that spent most."""
        begun = self.begun_at or until
        spent = [
            sum(max(0.0, min(note.at, until) - max(note.at - note.seconds, begun)) for note in notes)
            for notes in self._compiled.values()
        ]
        return max(spent, default=0.0)

    def joules(self, until: float) -> float | None:
        """Of all GPUs of all ranks since the beginning; None: not measured. The counters are read once a second."""
        begun, total = self.begun_at or until, 0.0
        for notes in self._energy.values():
            first, last = _nearest(notes, begun), _nearest(notes, until)
            total += last.joules - first.joules
        return total if self._energy else None


def _nearest(notes: list[Note], at: float) -> Note:
    return min(notes, key=lambda note: abs(note.at - at))


def _rank(name: str) -> int:
    return int(name.split("-")[1])
