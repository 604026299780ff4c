"""The two small JSON files that say what a checkpoint must be: a manifest from each rank, COMPLETE from the first.

A chain of sums: COMPLETE ends with its own, has those of the manifests and of the index, and a manifest has those of
its rank's files. So any byte of any file that counts is covered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vivace.checkpoint.errors import Damage, Damaged, DamageKind
from vivace.checkpoint.names import COMPLETE
from vivace.checkpoint.sums import FileSum, sum_of_bytes

__all__ = ["Complete", "RankManifest", "read_complete", "read_manifest"]

VERSION = 1
MOST_BYTES = 64 * 2**20
_OWN_SUM = "sha256 "


@dataclass(frozen=True)
class RankManifest:
    """What one rank wrote in one save."""

    save_id: str
    step: int
    rank: int
    files: tuple[FileSum, ...]

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()


@dataclass(frozen=True)
class Complete:
    """``sequence`` orders the saves of a folder, also after a return to an older step."""

    save_id: str
    step: int
    sequence: int
    world_size: int
    files: tuple[FileSum, ...]
    """The index and the manifests."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    saved_at: str = ""
    torch: str = ""
    version: int = VERSION

    def to_bytes(self) -> bytes:
        text = json.dumps(asdict(self), indent=1).encode() + b"\n"
        return text + f"{_OWN_SUM}{hashlib.sha256(text).hexdigest()}\n".encode()


def read_complete(folder: Path) -> Complete:
    """Raises ``Damaged``, or ``OSError`` for a file that cannot be opened."""
    path = folder / COMPLETE
    data = _read(path)
    text, _, own = data.rpartition(_OWN_SUM.encode())
    if own != f"{hashlib.sha256(text).hexdigest()}\n".encode():
        raise Damaged(Damage(DamageKind.MARKER, COMPLETE, "is not what was written"))
    fields = _parsed(text, COMPLETE)
    if fields.get("version") != VERSION:
        raise Damaged(Damage(DamageKind.VERSION, COMPLETE, f"is of version {fields.get('version')}, not {VERSION}"))
    try:
        return Complete(**{**fields, "files": _files_of(fields)})
    except TypeError as error:
        raise Damaged(Damage(DamageKind.MARKER, COMPLETE, f"has other fields ({error})")) from error


def read_manifest(folder: Path, expected: FileSum) -> RankManifest:
    """Compared with the sum that COMPLETE has of it. Raises ``Damaged``, ``OSError``."""
    data = _read(folder / expected.name)
    if sum_of_bytes(expected.name, data) != expected:
        raise Damaged(Damage(DamageKind.MANIFEST, expected.name, "is not what was written"))
    fields = _parsed(data, expected.name)
    try:
        return RankManifest(**{**fields, "files": _files_of(fields)})
    except TypeError as error:
        raise Damaged(Damage(DamageKind.MANIFEST, expected.name, f"has other fields ({error})")) from error


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Damaged(Damage(DamageKind.MANIFEST, path.name, f"is larger than {MOST_BYTES // 2**20} MiB"))
    return data


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(Damage(DamageKind.MANIFEST, name, "is no JSON")) from error
    if not isinstance(fields, dict):
        raise Damaged(Damage(DamageKind.MANIFEST, name, "is no JSON object"))
    return fields


def _files_of(fields: Mapping[str, Any]) -> tuple[FileSum, ...]:
    """Names that lead out of the folder are refused: a manifest may come from anybody."""
    files = tuple(FileSum(**one) for one in fields["files"])
    for file in files:
        if not isinstance(file.name, str) or Path(file.name).name != file.name or file.name in ("", ".", ".."):
            raise Damaged(Damage(DamageKind.MANIFEST, repr(file.name), "is no name of a file"))
    return files
