"""The files that a script writes its metric to: found while they appear, read as they grow.

A path may be a folder (TensorBoard's), or a pattern with ``*``. What was written before the command started is not
read: it belongs to an earlier run.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator
from pathlib import Path

from vivace.race.metrics.names import MetricName
from vivace.race.metrics.printed import Pair, ParsedLine
from vivace.race.metrics.readings import Source
from vivace.race.metrics.tables import TableFile
from vivace.race.metrics.tensorboard import EventFile, event_files

__all__ = ["Written", "WrittenFiles"]

Written = tuple[ParsedLine, float, Source, str]
"""What was written, when (``time.time()``), where to, and as text."""
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt")
_MOST_FILES = 200


class WrittenFiles:
    """``paths``: as the user gave them, relative to ``cwd``. ``read`` returns what has come since the last call."""

    def __init__(self, paths: tuple[str, ...], cwd: Path) -> None:
        self._patterns = [str(cwd / Path(path).expanduser()) for path in paths]
        self._events: dict[Path, EventFile] = {}
        self._tables: dict[Path, TableFile] = {}
        self._look(old=True)

    def _look(self, old: bool) -> None:
        for path in self._found():
            if path.is_file() and path.suffix in _TABLES:
                if path not in self._tables:
                    self._tables[path] = TableFile(path, skip_old=old)
                continue
            for events in event_files(path)[-_MOST_FILES:]:
                if events not in self._events:
                    self._events[events] = EventFile(events, events.stat().st_size if old else 0)

    def _found(self) -> Iterator[Path]:
        for pattern in self._patterns:
            for text in [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True)):
                yield Path(text)

    def read(self) -> list[Written]:
        self._look(old=False)
        written: list[Written] = []
        for events in self._events.values():
            for scalar in events.read():
                pair = Pair(MetricName.of(scalar.tag), scalar.tag, scalar.value)
                text = f"{scalar.tag} = {scalar.value:g} at step {scalar.step} in {events.path.name}"
                written.append((ParsedLine((pair,), scalar.step), scalar.wall_time, Source.TENSORBOARD, text))
        now = time.time()
        for table in self._tables.values():
            written += [(parsed, now, table.source, text) for parsed, text in table.read()]
        return written
