"""How a process that has torch in memory, and was forked (``server.py``), becomes the one that runs a script.

It looks to the script as a fresh one does: its own environment, folder, path and ``__main__``, vivace's bootstrap as
``sitecustomize``, and torch not imported yet. ``import torch`` finds the module that is in memory (through the usual
machinery, so that vivace's hook comes in as always), which saves three seconds of CPU time.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import site
import sys
from types import ModuleType
from typing import Any


class _InMemory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch as the path does; to load it is to hand out the module that was imported before the fork."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            self.real, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path.remove(self)
        module.__spec__.loader = module.__loader__ = self.real


def import_torch() -> dict[str, str]:
    """Returns the variables that torch sets."""
    before = dict(os.environ)
    import torch
    import torch._dynamo  # which the first optimizer would import

    assert torch._dynamo is not None
    for name in filter(None, os.environ.get("FORKED_IMPORTS", "").split(",")):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector writes to what it looks at, and every page written is copied
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


def paths_of_this_python() -> list[str]:
    """Without our own folder and what PYTHONPATH adds, which a script gets from its own environment."""
    added = [os.path.abspath(e) for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e]
    return [entry for entry in sys.path[1:] if entry not in added]


def become(words: list[str], folder: str, environment: dict[str, str], files: list[int], paths: list[str]) -> None:
    """As if this process had just been started with ``python WORDS`` in FOLDER."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    is_module = words[0] == "-m"
    first = os.getcwd() if is_module else os.path.dirname(os.path.realpath(words[0]))
    asked = [os.path.abspath(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [first, *asked, *paths]
    sys.argv[:] = words[1:] if is_module else words
    sys.orig_argv[:] = [sys.executable, *words]
    sys.meta_path.insert(0, _InMemory(sys.modules.pop("torch")))
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()


def run_main(words: list[str]) -> None:
    """What Python itself does with ``python SCRIPT`` and ``python -m MODULE``."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __spec__=None)
    if words[0] == "-m":
        runpy._run_module_as_main(words[1])
        return
    main.__file__ = script = os.path.abspath(words[0])
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, main.__dict__)
