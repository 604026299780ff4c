"""What the operating system counts of a thread: waits for a core, and how often it gave one up."""

from __future__ import annotations

import os
import resource
import threading

__all__ = ["Scheduler"]


class Scheduler:
    """How long the calling thread could have run and had no core, as Linux counts it."""

    def __init__(self) -> None:
        try:
            thread = threading.get_native_id()
            self._file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self.waited_ns()
        except (OSError, ValueError, IndexError):
            self._file = -1

    @property
    def tells(self) -> bool:
        """Whether this system counts it."""
        return self._file >= 0

    def waited_ns(self) -> int:
        return int(os.pread(self._file, 96, 0).split()[1]) if self._file >= 0 else 0

    @staticmethod
    def blocked() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
