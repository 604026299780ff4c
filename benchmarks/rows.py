"""What the benchmarks of check and tune share: a CSV that grows row by row, and a clock for the whole run.

A machine may be lent for minutes and taken back: every row is on the disk as soon as it is known, and no row that fails
takes the others with it.
"""

from __future__ import annotations

import csv
import os
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Clock", "Table", "hardware", "say"]


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def hardware(device: str) -> dict[str, str]:
    """The two columns that every table ends with."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {os.cpu_count()} CPU cores"
    return {"hardware": name, "torch": torch.__version__}


class Clock:
    """Minutes for a whole benchmark; ``None``: as long as it takes."""

    def __init__(self, minutes: float | None) -> None:
        self.began = time.monotonic()
        self.minutes = minutes

    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def left_s(self) -> float:
        return float("inf") if self.minutes is None else self.minutes * 60 - self.elapsed_s()

    def timeout_s(self, at_most: float) -> float:
        return max(1.0, min(at_most, self.left_s()))


class Table:
    """Rows with fixed columns, appended to a CSV and flushed one by one."""

    def __init__(self, path: Path, fields: Sequence[str], fixed: dict[str, Any]) -> None:
        self.path, self.fields, self.fixed = path, tuple(fields), fixed
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, **row: Any) -> None:
        values = {name: _rounded(value) for name, value in {**row, **self.fixed}.items()}
        new = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.fields, restval="", lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(values)
        say("  ".join(f"{name}={value}" for name, value in values.items() if value not in ("", None)))

    def attempt(self, clock: Clock, work: Callable[[], None], **row: Any) -> None:
        """Do the work of one row (or group of rows); where it cannot be done, the row says why."""
        if clock.left_s() < 5:
            self.add(**row, note="not run: the time given by --budget was over")
            return
        try:
            work()
        except Exception as error:  # one row must not take the others with it
            traceback.print_exc()
            self.add(**row, note=f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) and abs(value) < 1000 else _whole(value)


def _whole(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value
