"""What can be wrong with a checkpoint, as kinds to decide on beside the words for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from vivace.preemption.checkpoint import CheckpointError

__all__ = ["CheckpointError", "Damage", "DamageKind", "Damaged", "NotSaved", "Refused", "RefusedError"]


class DamageKind(Enum):
    """Why a checkpoint is not what was saved."""

    MARKER = "marker"
    MANIFEST = "manifest"
    VERSION = "version"
    MISSING = "missing"
    SIZE = "size"
    SUM = "sum"
    UNREADABLE = "unreadable"
    MIXTURE = "mixture"
    """Files of different saves."""
    INDEX = "index"


@dataclass(frozen=True)
class Damage:
    kind: DamageKind
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.file} {self.text}"


class Damaged(Exception):
    """Raised while a checkpoint is read; the load falls back on the one before."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage)
        self.damage = damage

    def __str__(self) -> str:
        return str(self.damage)


class Refused(Enum):
    """Why a whole checkpoint is not loaded all the same. Falling back would not help."""

    UNSAFE = "unsafe"
    """It asks to run code, or points out of its folder."""
    OTHER_MODEL = "other model"
    """Other names, shapes or dtypes."""
    ALL_DAMAGED = "all damaged"
    NOT_SHARED = "not shared"
    """The ranks do not see the same files."""
    NO_ACCESS = "no access"


class RefusedError(CheckpointError):
    """The checkpoint is not loaded; the message says why and what to do."""

    def __init__(self, why: Refused, message: str, files: tuple[Path, ...] = ()) -> None:
        super().__init__(message, files)
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        """Ranks send it to each other."""
        return (RefusedError, (self.why, str(self), self.files))


class NotSaved(CheckpointError):
    """A save failed, and ``on_error`` is to stop. ``cause`` is the system's error."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message, ())
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return (NotSaved, (str(self), self.cause))
