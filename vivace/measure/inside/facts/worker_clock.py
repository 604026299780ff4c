"""How busy the loader's workers are: do they compute, or do they wait for storage or for a sleep to end?

A worker that waits for a core is busy too: on a full machine it would compute if it could. Linux counts both times for
every thread (``/proc/PID/task/TID/schedstat``). Elsewhere nothing is known.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["WorkerClock"]

_MOST_IDLE = 0.2  # of the time since the first reading: workers that nobody asks for batches wait


class WorkerClock:
    """Read twice, outside the timed steps: when the workers appear or the window opens, and after the window or
    before they end."""

    def __init__(self) -> None:
        self._pids: tuple[int, ...] = ()
        self._busy_ns: dict[int, int] = {}
        self._began_s = 0.0

    def watch(self, pids: Sequence[int], anew: bool = False) -> None:
        """Begin, unless these very workers are watched already. ``anew``: they have started, and do what they do."""
        if tuple(pids) == self._pids and not anew:
            return
        self._pids = tuple(pids)
        self._busy_ns = _busy_ns(pids)
        self._began_s = time.perf_counter()

    def busy_share(self, pids: Sequence[int], idle_s: float = 0.0) -> float | None:
        """The share of the time since ``watch`` in which a worker ran or waited for a core, mean over the workers.

        None: no workers, other ones than were watched, not told by the system, or ``idle_s`` since the last batch was
        asked for, too long to say anything."""
        now, elapsed_ns = _busy_ns(pids), 1e9 * (time.perf_counter() - self._began_s)
        if 1e9 * idle_s > _MOST_IDLE * elapsed_ns:
            return None
        if not pids or set(now) != set(pids) or set(self._busy_ns) != set(pids) or elapsed_ns <= 0:
            return None
        used = sum(now[pid] - self._busy_ns[pid] for pid in pids)
        return max(0.0, min(1.0, used / len(pids) / elapsed_ns))


def _busy_ns(pids: Sequence[int]) -> dict[int, int]:
    """Of each process that could be read: running and waiting for a core, all threads together."""
    busy: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            threads = [task.read_text().split() for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
            if threads:
                busy[pid] = sum(int(running) + int(waiting) for running, waiting, *_ in threads)
    return busy
