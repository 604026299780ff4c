"""Which entry of a list of GPUs a driver's name means. The command knows the list; the process asks it too."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["GpuNames", "KnownGpu", "find_by_name"]


@dataclass(frozen=True)
class GpuNames:
    """Exact names, and patterns of the names that drivers give (``*`` and ``?`` as in a shell)."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def is_named(self, wanted: str) -> bool:
        return wanted in (name.lower() for name in self.names)

    def matches(self, wanted: str) -> bool:
        """Drivers before 2021 leave "NVIDIA " out, so both sides are compared without it."""
        bare = _bare(wanted)
        return any(fnmatch.fnmatchcase(bare, _bare(pattern.lower())) for pattern in self.patterns)


@dataclass(frozen=True)
class KnownGpu(GpuNames):
    """A GPU of the catalogue, and the arithmetics (fp32, bf16, …) that it has a peak for."""

    arithmetics: tuple[str, ...] = ()


Names = TypeVar("Names", bound=GpuNames)


def find_by_name(name: str, gpus: Sequence[Names]) -> Names | None:
    """An exact name wins; then the last pattern that matches: the user's entries come last, and win over ours."""
    wanted = name.strip().lower()
    for gpu in gpus:
        if gpu.is_named(wanted):
            return gpu
    return next((gpu for gpu in reversed(gpus) if gpu.matches(wanted)), None)


def _bare(name: str) -> str:
    return name[len("nvidia ") :] if name.startswith("nvidia ") else name
