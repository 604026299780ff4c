"""What folders and files of a checkpoint are called. ::

FOLDER/
  step-00001200/              one save; a second save of the same step is step-00001200.2
    .metadata                 DCP's index: which tensor lies where
    __0_0.distcp …            the tensors, from each rank
    state-00000.pt …          each rank's TrainState
    manifest-00000.json …     size and SHA-256 of what that rank wrote
    OWNER                     who writes it (to tell a dead writer from a slow one)
    COMPLETE                  written last: the sums of the manifests and of the index
  step-00001400.tmp-…         a save that is under way, or was interrupted
  step-00001000.damaged       set aside by a load
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = [
    "COMPLETE", "INDEX", "OWNER", "UNFINISHED", "aside_name", "final_names", "manifest_name", "state_name", "step_of",
    "temporary_name", "trash_name",
]  # fmt: skip

COMPLETE, INDEX, OWNER = "COMPLETE", ".metadata", "OWNER"
_SAVED = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
UNFINISHED = re.compile(r"step-\d{8,}(?:\.\d+)?\.(tmp|trash)-[0-9a-z-]+")


def step_of(name: str) -> int | None:
    """
    >>> step_of("step-00001200"), step_of("step-00001200.2"), step_of("step-00001200.tmp-1f")
    (1200, 1200, None)
    """
    found = _SAVED.fullmatch(name)
    return int(found[1]) if found else None


def final_names(step: int) -> tuple[str, ...]:
    """The names a save of this step may get, in order: no folder is ever written over."""
    first = f"step-{step:08}"
    return (first, *(f"{first}.{number}" for number in range(2, 1000)))


def temporary_name(step: int, token: str) -> str:
    return f"step-{step:08}.tmp-{token}"


def trash_name(name: str, token: str) -> str:
    return f"{name}.trash-{token}"


def aside_name(folder: Path) -> Path:
    """Where a damaged checkpoint goes."""
    for ending in ("", *(f"-{number}" for number in range(2, 1000))):
        path = folder.with_name(f"{folder.name}.damaged{ending}")
        if not path.exists():
            return path
    raise FileExistsError(f"a thousand damaged copies of {folder}")


def manifest_name(rank: int) -> str:
    return f"manifest-{rank:05}.json"


def state_name(rank: int) -> str:
    return f"state-{rank:05}.pt"
