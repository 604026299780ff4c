"""Resident memory after every timed step: one read of a small file. A GPU's memory after some of them."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import torch

from vivace.protocol.over_time import SeenMemorySeries

__all__ = ["MemorySeries"]

_ON_GPU = 8  # reads in a window: asking the allocator takes longer
_MIB = 2**20


class MemorySeries:
    def __init__(self, on_gpu: bool, steps: int) -> None:
        self.host = SeenMemorySeries()
        self.gpu: SeenMemorySeries | None = SeenMemorySeries() if on_gpu else None
        self._every = max(1, steps // _ON_GPU)
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def note(self, step: int) -> None:
        if self._file >= 0:
            pages = int(os.pread(self._file, 96, 0).split()[1])
            self.host.steps.append(step)
            self.host.mib.append(pages * resource.getpagesize() / _MIB)
        if self.gpu is not None and step % self._every == 0:
            self.gpu.steps.append(step)
            self.gpu.mib.append(torch.cuda.memory_allocated() / _MIB)

    def close(self) -> None:
        """What is free now: of the machine, and of the GPU with what the allocator keeps."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
        with contextlib.suppress(OSError, ValueError, StopIteration, IndexError):
            lines = Path("/proc/meminfo").read_text().splitlines()
            available = next(line for line in lines if line.startswith("MemAvailable"))
            self.host = SeenMemorySeries(self.host.steps, self.host.mib, int(available.split()[1]) / 1024)
        with contextlib.suppress(RuntimeError):
            if self.gpu is not None:
                kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
                free = (torch.cuda.mem_get_info()[0] + kept) / _MIB
                self.gpu = SeenMemorySeries(self.gpu.steps, self.gpu.mib, free)
