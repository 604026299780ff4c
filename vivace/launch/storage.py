"""Where a job's files lie on a site's disks, and what the site says about that place. Reads the environment only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vivace.hardware.specs import StorageSpec
from vivace.launch.target import Target

__all__ = ["storage_notes"]

SMALL_GB = 10.0  # a checkpoint or two


def storage_notes(target: Target, folder: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Sentences about a folder for results that lies where results should not."""
    space = _space_of(target, folder, environment)
    if space is None:
        return []
    better = " or ".join(f"${other.variable}" for other in target.storage if _is_for_results(other)) or "elsewhere"
    if not _is_for_results(space):
        return [f"{folder} lies in ${space.variable} ({space.advice}): choose {better} with --output"]
    if space.file_life_days is not None:
        return [
            f"{folder} lies in ${space.variable}: files there are deleted after {space.file_life_days} days without use"
        ]
    return []


def _space_of(target: Target, folder: Path, environment: Mapping[str, str]) -> StorageSpec | None:
    """The innermost space that holds the folder: $WORK may lie under another."""
    inside = []
    for space in target.storage:
        root = environment.get(space.variable)
        if root and folder.resolve().is_relative_to(Path(root).resolve()):
            inside.append((len(Path(root).resolve().parts), space))
    return max(inside, key=lambda pair: pair[0])[1] if inside else None


def _is_for_results(space: StorageSpec) -> bool:
    small = space.quota_gb is not None and space.quota_gb < SMALL_GB
    slow_or_gone = space.variable in ("STORE", "JOBSCRATCH")
    return space.writable and not small and not slow_or_gone
