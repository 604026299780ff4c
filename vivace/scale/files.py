"""Only rank 0 writes. What another rank writes goes to a folder of its own, and is found there when it is read back.

All ranks run the same program, so the shadow holds the same bytes as rank 0's file. Caught: ``open``, ``io.open``,
``os.open``, ``torch.save`` and ``torch.load`` by name, the functions of ``os`` that move, make or remove, SQLite and
HDF5 (``files_from_c``). Programs that the script starts are run by rank 0 (``programs``). Not caught: other libraries
that write from C.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import torch

from vivace.scale.files_from_c import shadow_libraries

__all__ = ["Shadow", "keep_files_apart"]

_PATIENCE_S = 5.0
_WRITING = frozenset("wax+")
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def keep_files_apart(told: str, makes_folders: bool = False) -> None:
    """From now on, and until this process ends. What is written below ``told`` is vivace's own.

    ``makes_folders``: this is the process that makes the script's folders, and removes those that are empty at its end.
    """
    folder, remove = Path(tempfile.mkdtemp(prefix="vivace-files-")), shutil.rmtree
    shadow = Shadow(folder, told, makes_folders)
    atexit.register(remove, folder, ignore_errors=True)
    atexit.register(shadow.remove_folders)
    shadow.install()


class Shadow:
    """The files of one rank other than 0, below ``folder``. What is written below ``told`` is vivace's own."""

    def __init__(self, folder: Path, told: str = "", makes_folders: bool = False) -> None:
        self.folder, self.makes_folders = folder, makes_folders
        self._not_shadowed: tuple[str, ...] = ("/dev/", "/proc/", str(folder), *([told] if told else []))
        self.written: set[str] = set()
        self.removed: set[str] = set()
        self.made: dict[str, None] = {}  # folders, in the order in which they were made
        self._open, self._stat, self._rmdir = builtins.open, os.stat, os.rmdir
        self._pid = os.getpid()

    def install(self) -> None:
        builtins.open = io.open = self._opened(builtins.open)
        os.open = self._os_opened(os.open)
        torch.save = self._saved(torch.save)
        torch.load = self._loaded(torch.load)
        for name in ("remove", "unlink"):
            setattr(os, name, self._removing(getattr(os, name)))
        for name in ("rename", "replace"):
            setattr(os, name, self._moving(getattr(os, name)))
        tempfile.mkdtemp = self._temporary(tempfile.mkdtemp, os.mkdir)  # type: ignore[assignment]
        for name in ("mkdir", "makedirs"):
            setattr(os, name, self._making(getattr(os, name), name == "makedirs"))
        os.listdir = self._listing(os.listdir)
        os.rmdir = self._unless_ours(os.rmdir)
        shutil.rmtree = self._unless_ours(shutil.rmtree)  # type: ignore[assignment]
        os.stat = self._looking(os.stat)
        os.path.exists = self._existing(os.path.exists)
        os.path.isfile = self._existing(os.path.isfile)
        shadow_libraries(self.place_in_library)

    # -- where a file of the script lies for this rank ---------------------------------------------------------------

    def place_of(self, path: Any) -> str:
        """Below our folder for a file that this rank has written, else the path itself."""
        name = self._name(path)
        apart = self._is_written(name) or (name in self.made and not self._really_exists(name))
        return self._below(name) if apart else os.fspath(path)

    def _is_written(self, name: str) -> bool:
        """By this process, or by a child that it forked."""
        return name in self.written or (self._is_ours(name) and _is_there(self._stat, self._below(name)))

    def place_in_library(self, path: Any, writes: bool) -> str:
        """For a library that opens files by itself."""
        if not self._is_ours(path):
            return os.fsdecode(path)
        return self._to_write(path, keeps=True) if writes else os.fsdecode(self.place_of(path))

    def _to_write(self, path: Any, keeps: bool) -> str:
        """A path below our folder; ``keeps``: what the file holds already is wanted there."""
        name = self._name(path)
        target = self._below(name)
        if name not in self.written:
            self._really_make(os.path.dirname(target))
            if keeps and self._really_exists(name):
                with self._open(name, "rb") as source, self._open(target, "wb") as copy:
                    copy.write(source.read())
            self.written.add(name)
            self.removed.discard(name)
        return target

    def _name(self, path: Any) -> str:
        return os.path.abspath(os.fsdecode(path))

    def _below(self, name: str) -> str:
        return str(self.folder) + name

    def _is_ours(self, path: Any) -> bool:
        """A file of the script: not a device, a pipe, or what is ours already."""
        if isinstance(path, int):
            return False
        name = self._name(path)
        return not name.startswith(self._not_shadowed)

    def _really_exists(self, name: str) -> bool:
        return _is_there(self._stat, name)

    # -- stand-ins ---------------------------------------------------------------------------------------------------

    def _opened(self, original: Any) -> Any:
        self._really_make = _quietly_made(os.mkdir, self._stat)

        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, int) or not self._is_ours(file):
                return original(file, mode, *args, **kwargs)
            if _WRITING.intersection(mode):
                return original(self._to_write(file, keeps="w" not in mode), mode, *args, **kwargs)
            return original(self.place_of(file), mode, *args, **kwargs)

        return open_

    def _os_opened(self, original: Any) -> Any:
        def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if kwargs.get("dir_fd") is not None or not self._is_ours(path):
                return int(original(path, flags, *args, **kwargs))
            if flags & _WRITING_FLAGS:
                return int(original(self._to_write(path, keeps=not flags & os.O_TRUNC), flags, *args, **kwargs))
            return int(original(self.place_of(path), flags, *args, **kwargs))

        return open_

    def _saved(self, original: Any) -> Any:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            named = isinstance(f, (str, os.PathLike))
            return original(obj, self._to_write(f, keeps=False) if named else f, *args, **kwargs)

        return save

    def _loaded(self, original: Any) -> Any:
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self.place_of(f) if isinstance(f, (str, os.PathLike)) else f, *args, **kwargs)

        return load

    def _removing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def remove(path: Any, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("dir_fd") is not None or not self._is_ours(path):
                return original(path, *args, **kwargs)
            name = self._name(path)
            if name in self.written:
                self.written.discard(name)
                original(self._below(name))
            self.removed.add(name)
            return None

        return remove

    def _moving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def move(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
            if not self._is_ours(source):
                return original(source, target, *args, **kwargs)
            name = self._name(source)
            if name in self.written:
                original(self._below(name), self._to_write(target, keeps=False))
                self.written.discard(name)
            self.removed.add(name)
            return None

        return move

    def _temporary(self, original: Callable[..., str], mkdir: Callable[..., None]) -> Callable[..., str]:
        """A temporary folder is this rank's own, and really there: sockets and libraries in C may use it."""

        def mkdtemp(*args: Any, **kwargs: Any) -> str:
            stand_in, os.mkdir = os.mkdir, mkdir
            try:
                folder = original(*args, **kwargs)
            finally:
                os.mkdir = stand_in
            self._not_shadowed = (*self._not_shadowed, self._name(folder) + os.sep)
            return folder

        return mkdtemp

    def _unless_ours(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is not None or isinstance(path, int):  # inside a folder that was let through
                return original(path, *args, **kwargs)
            own = (self._name(path) + os.sep).startswith(self._not_shadowed)
            return original(path, *args, **kwargs) if own else None

        return call

    def _missing(self, path: str) -> list[str]:
        """The folders that are not there, from the innermost on."""
        missing = []
        while path not in self.made and not self._really_exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        return missing

    def _comes(self, path: str) -> bool:
        """Rank 0 runs the same program, and makes it too; libraries in C want it to be there."""
        until = time.monotonic() + _PATIENCE_S
        while not (there := self._really_exists(path)) and time.monotonic() < until:
            time.sleep(0.01)
        return there

    def remove_folders(self) -> None:
        """Those that this process has made, where nothing lies in them."""
        for path in reversed(self.made if self.makes_folders and os.getpid() == self._pid else ()):
            with contextlib.suppress(OSError):
                self._rmdir(path)

    def _making(self, original: Callable[..., Any], with_parents: bool) -> Callable[..., Any]:
        """Rank 0 makes folders. One with a name that it does not use (a time, a process number) is kept apart."""

        def make(name: Any, *args: Any, **kwargs: Any) -> None:
            path = self._name(name)
            if not self._is_ours(path):
                return original(name, *args, **kwargs)
            missing = self._missing(path)
            if self.makes_folders:
                original(name, *args, **kwargs)
            elif missing and not self._comes(path):
                if not with_parents and len(missing) > 1:
                    raise FileNotFoundError(f"there is no folder {os.path.dirname(path)}")
                self._really_make(self._below(path))
            else:
                return None
            self.made.update(dict.fromkeys(reversed(missing)))
            return None

        return make

    def _listing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What is in a folder, with what this process has written there."""

        def listed(path: Any = ".") -> Any:
            if isinstance(path, int) or not self._is_ours(path):
                return original(path)
            name = self._name(path)
            apart = [each for each in (*self.written, *self.made) if os.path.dirname(each) == name]
            if not apart or not self._really_exists(name):
                return original(self.place_of(path))
            found = original(path)
            return sorted({*found, *map(os.path.basename, apart)})

        return listed

    def _looking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def stat(path: Any, *args: Any, **kwargs: Any) -> Any:
            as_it_is = isinstance(path, int) or kwargs.get("dir_fd") is not None
            return original(path if as_it_is else self.place_of(path), *args, **kwargs)

        return stat

    def _existing(self, original: Callable[..., bool]) -> Callable[..., bool]:
        def exists(path: Any) -> bool:
            if isinstance(path, int):
                return original(path)
            name = self._name(path)
            return name in self.written or (name not in self.removed and original(self.place_of(path)))

        return exists


def _quietly_made(mkdir: Callable[..., None], stat: Callable[..., Any]) -> Callable[[str], None]:
    """``os.makedirs`` itself calls ``os.mkdir``, which is replaced."""

    def make(folder: str) -> None:
        missing = [folder]
        while not _is_there(stat, os.path.dirname(missing[-1])):
            missing.append(os.path.dirname(missing[-1]))
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                mkdir(each)

    return make


def _is_there(stat: Callable[..., Any], path: str) -> bool:
    try:
        stat(path)
    except (OSError, ValueError):
        return False
    return True
