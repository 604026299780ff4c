"""Is a folder byte for byte the same as before? For environments of several gigabytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["changes", "digests"]

_BLOCK_BYTES = 1 << 20


def digests(folder: Path) -> dict[str, str]:
    """Each file below it with a hash of its content, each link with its target. Times do not count: reading changes
    them on some systems."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = f"-> {os.readlink(path)}"
            elif path.is_dir():
                found[key] = "folder"
            else:
                found[key] = _digest(path)
    return found


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What is new, gone or different, by name."""
    new = [f"new: {name}" for name in sorted(after.keys() - before.keys())]
    gone = [f"gone: {name}" for name in sorted(before.keys() - after.keys())]
    other = [f"changed: {name}" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    return new + gone + other
