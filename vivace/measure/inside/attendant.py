"""A quiet thread beside the training: tells the parent how far we are, samples power, obeys a request to stop.

It is what still works when the training thread hangs: the parent leaves a file named ``stop``, with the reason in it,
and the attendant writes what was seen so far.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from vivace.protocol.ending import Ended
from vivace.protocol.progress import SeenProgress

__all__ = ["STOP_FILE", "Attendant"]

STOP_FILE = "stop"
_PERIOD_S = 0.2
_GRACE_S = 30.0  # where the training ran in a thread: time for the main thread to notice, before we end the process


class Attendant(threading.Thread):
    def __init__(
        self,
        folder: Path,
        progress: Callable[[], SeenProgress],
        sample: Callable[[], None],
        on_stop: Callable[[Ended], None],
    ) -> None:
        super().__init__(name="vivace-attendant", daemon=True)
        self.folder, self.progress, self.sample, self.on_stop = folder, progress, sample, on_stop
        self.done = threading.Event()
        self.leaving = threading.Event()
        self._path = folder / f"progress-{socket.gethostname()}-{os.getpid()}.json"  # nodes share the folder

    def run(self) -> None:
        while not self.leaving.is_set() and not self.done.wait(_PERIOD_S):
            with contextlib.suppress(OSError, ValueError):
                self._tell()
                if (self.folder / STOP_FILE).exists():
                    self.on_stop(Ended.from_text((self.folder / STOP_FILE).read_text()))
                    return
            self.sample()
        if self.leaving.is_set() and not self.done.wait(_GRACE_S):
            # The record is safe: end here.
            with contextlib.suppress(Exception):
                import sys

                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(0)

    def _tell(self) -> None:
        """In one piece: the process may be killed while it writes."""
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text(self.progress().to_text())
        os.replace(temporary, self._path)
