"""Checkpoint files that are whole or not there, with older ones to fall back on.

Written beside the target, flushed to disk and renamed over it. ``torch.save`` writes a zip archive with a CRC-32 of
every part, which ``torch.load`` does not look at (a flipped bit becomes another number): ``load_newest`` does. Nothing
in a checkpoint is executed (``weights_only``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vivace.preemption.durable import SAVING, first_line, write_durably
from vivace.preemption.job_files import is_first_rank, note_checkpoint
from vivace.preemption.peers import Peers, split_ranks

__all__ = ["CheckpointError", "load_newest", "save_atomically"]

_ABANDONED_S = 3600.0  # a file that a killed process was writing; no save pauses that long


class CheckpointError(Exception):
    """No checkpoint can be loaded although there are some. ``files`` says which."""

    def __init__(self, message: str, files: Sequence[Path]) -> None:
        super().__init__(message)
        self.files = tuple(files)

    def __reduce__(self) -> tuple[Any, ...]:
        """Ranks send it to each other."""
        return (CheckpointError, (str(self), self.files))


class _Damaged(Exception):
    """Why a file is not what was saved."""


def save_atomically(
    state: Any,
    path: str | os.PathLike[str],
    write: Callable[[Any, Any], None] | None = None,
    keep: int = 1,
) -> None:
    """``torch.save`` that leaves the old file or the new one, never half of one. A link stays a link.

    ``keep=2`` keeps the one before as ``PATH.1``, ``keep=3`` also ``PATH.2``; ``load_newest`` falls back on them.

    In a training that vivace splits over ranks (``vivace run --ranks``) every rank calls this, and rank 0 writes.
    """
    ranks = split_ranks()
    if ranks is None:
        _save(state, path, write, keep)
    else:
        _save_with(ranks, state, path, write, keep)


def _save_with(ranks: Peers, state: Any, path: Any, write: Any, keep: int) -> None:
    """All ranks go through the state, for parts of it may lie on several. They return together, so that each of them
    finds the file, and fail together: what the script does about an error it does on all ranks."""
    failure: BaseException | None = None
    try:
        if ranks.rank == 0:
            _save(state, path, write, keep)
        else:
            with open(os.devnull, "wb") as nothing:
                (write or _torch_save)(state, nothing)
    except Exception as error:
        failure = error
    number = 0 if failure is None else getattr(failure, "errno", None) or errno.EIO
    number = ranks.ask_most(number)()
    if failure is not None:
        raise failure
    if number:
        raise OSError(number, f"another rank could not save: {os.strerror(number)}", os.fspath(path))


def _save(state: Any, path: str | os.PathLike[str], write: Callable[[Any, Any], None] | None, keep: int) -> None:
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    write_durably(target, lambda file: (write or _torch_save)(state, file), lambda: _rotate(target, keep))
    note_checkpoint(target)


def load_newest(path: str | os.PathLike[str], map_location: Any = None) -> Any:
    """What was last saved at ``path``, or None when nothing was.

    A damaged file is named on stderr and set aside, and the one before it is loaded. When all are damaged, or the
    file holds more than tensors and plain values, ``CheckpointError`` is raised.
    """
    damaged: dict[Path, str] = {}
    for file in _newest_first(Path(os.path.realpath(path))):
        try:
            state = _load(file, map_location)
        except FileNotFoundError:  # another rank has set it aside
            continue
        except _Damaged as reason:
            damaged[file] = str(reason)
            continue
        if damaged and is_first_rank():
            _set_aside(damaged, file)
        return state
    if damaged:
        text = "; ".join(f"{file}: {reason}" for file, reason in damaged.items())
        raise CheckpointError(f"every checkpoint is damaged: {text}", list(damaged))
    return None


def _newest_first(target: Path) -> Iterator[Path]:
    yield target
    pattern = re.compile(re.escape(target.name) + r"\.(\d+)")
    names = os.listdir(target.parent) if target.parent.is_dir() else []
    numbers = sorted(int(found[1]) for found in map(pattern.fullmatch, names) if found)
    for number in numbers:
        yield _numbered(target, number)


def _numbered(target: Path, number: int) -> Path:
    return target.with_name(f"{target.name}.{number}")


def _load(file: Path, map_location: Any) -> Any:
    _check_sums(file)
    import torch

    try:
        return torch.load(file, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        text = f"{file} holds more than tensors and plain values: {str(error).strip().splitlines()[0]}"
        raise CheckpointError(f"{text} (see torch.serialization.add_safe_globals)", [file]) from error
    except (MemoryError, FileNotFoundError):
        raise
    except Exception as error:
        if _loads_on_the_cpu(file):
            raise  # the file is whole: the device is not there, or too small
        raise _Damaged(first_line(error)) from error


def _check_sums(file: Path) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            wrong = archive.testzip()
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise _Damaged(first_line(error)) from error
    except Exception as error:  # zipfile meets damage with many kinds of errors
        whole = "is empty" if file.stat().st_size == 0 else f"is truncated or no checkpoint ({first_line(error)})"
        raise _Damaged(whole) from error
    if wrong is not None:
        raise _Damaged(f"has a wrong checksum in {wrong}")


def _loads_on_the_cpu(file: Path) -> bool:
    import torch

    try:
        torch.load(file, map_location="cpu", weights_only=True)
    except Exception:
        return False
    return True


def _set_aside(damaged: dict[Path, str], loaded: Path) -> None:
    """Out of the rotation: the next save must not push a good file out for a damaged one."""
    for file, reason in damaged.items():
        aside = file.with_name(f"{file.name}.damaged")
        with contextlib.suppress(OSError):
            os.replace(file, aside)
        where = f"set aside as {aside.name}" if aside.exists() else "left there"
        print(f"vivace: {file} {reason}: {where}, {loaded} is loaded instead", file=sys.stderr, flush=True)


def _rotate(target: Path, keep: int) -> None:
    """The newest file is under its own name all the time: a hard link, not a renaming, makes it the older one."""
    if keep < 1:
        raise ValueError(f"keep must be 1 or more, and is {keep}")
    for number in range(keep - 1, 1, -1):
        with contextlib.suppress(FileNotFoundError):
            os.replace(_numbered(target, number - 1), _numbered(target, number))
    if keep > 1 and target.exists():
        older = _numbered(target, 1)
        older.unlink(missing_ok=True)
        try:
            os.link(target, older)
        except OSError:  # a file system without hard links
            os.replace(target, older)


def _remove_abandoned(target: Path) -> None:
    for file in target.parent.glob(f".{target.name}.*{SAVING}"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _ABANDONED_S:
                file.unlink()


def _torch_save(state: Any, file: Any) -> None:
    import torch

    options = torch.serialization
    if not hasattr(options, "get_crc32_options"):  # before torch 2.6 there is no way to leave the sums out
        torch.save(state, file)
        return
    before = options.get_crc32_options()
    options.set_crc32_options(True)
    try:
        torch.save(state, file)
    finally:
        options.set_crc32_options(before)
