"""Libraries that write files from C: on ranks other than 0 they get a path of the shadow (``files``) by their names."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import torch

from vivace.measure.inside.patches import in_place_of
from vivace.scale.errors import ScaleError

__all__ = ["shadow_libraries"]

Place = Callable[[Any, bool], str]
"""(path, whether it is written) → where it lies for this rank."""


def shadow_libraries(place: Place) -> None:
    _sqlite(place)
    _torchscript(place)
    _after_import("h5py", lambda module: _hdf5(module, place))
    _after_import("safetensors", lambda module: _safetensors(module, place))
    _after_import("cv2", lambda module: _opencv(module, place))


def _sqlite(place: Place) -> None:
    original = sqlite3.connect

    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(database, (str, bytes)) and not database:
            return original(database, *args, **kwargs)
        if database != ":memory:":
            if kwargs.get("uri"):
                raise ScaleError("a SQLite database is opened by a URI, and each rank would write to it; give its path")
            database = place(database, True)
        return original(database, *args, **kwargs)

    sqlite3.connect = sqlite3.dbapi2.connect = in_place_of(original, connect)


def _hdf5(h5py: Any, place: Place) -> None:
    original = h5py.File.__init__

    def init(file: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        if isinstance(name, (str, bytes)) or hasattr(name, "__fspath__"):
            name = place(name, mode != "r")
        original(file, name, mode, *args, **kwargs)

    h5py.File.__init__ = in_place_of(original, init)


def _by_name(home: Any, function: str, at: int, place: Place, writes: bool) -> None:
    """A function whose argument ``at`` is the path of a file that it reads or writes."""
    original = getattr(home, function, None)
    if original is None:
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        words = list(args)
        if len(words) > at and (isinstance(words[at], (str, bytes)) or hasattr(words[at], "__fspath__")):
            words[at] = place(words[at], writes)
        elif "filename" in kwargs:
            kwargs["filename"] = place(kwargs["filename"], writes)
        return original(*words, **kwargs)

    setattr(home, function, in_place_of(original, call) if hasattr(original, "__code__") else call)


def _torchscript(place: Place) -> None:
    _by_name(torch.jit, "save", 1, place, writes=True)
    _by_name(torch.jit, "load", 0, place, writes=False)
    for kind in (torch.jit.RecursiveScriptModule, torch.jit.ScriptModule):  # a traced module has a copy of the method
        _by_name(kind, "save", 1, place, writes=True)


def _safetensors(module: Any, place: Place) -> None:
    _by_name(module, "serialize_file", 1, place, writes=True)
    _by_name(module, "safe_open", 0, place, writes=False)
    for name in ("torch", "numpy"):  # where they were imported already
        part = sys.modules.get(f"{module.__name__}.{name}")
        if part is not None:
            part.serialize_file, part.safe_open = module.serialize_file, module.safe_open  # type: ignore[attr-defined]


def _opencv(module: Any, place: Place) -> None:
    _by_name(module, "imwrite", 0, place, writes=True)
    _by_name(module, "imread", 0, place, writes=False)


class _Afterwards(importlib.abc.MetaPathFinder):
    """Runs a function when a module was imported."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self.change(module)

        loader.exec_module = exec_module
        return spec


def _after_import(name: str, change: Callable[[Any], None]) -> None:
    if name in sys.modules:
        change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Afterwards(name, change))
