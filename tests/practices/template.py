"""A Python that has imported torch already, and forks one process for each script that a test wants to run.

Started as a program by ``practices.forked``. A line of JSON on stdin asks for a script; its exit code is the answer on
stdout. The forked process looks to the script as a fresh one does: its own environment, folder, path and ``__main__``,
vivace's bootstrap as ``sitecustomize``, and torch not imported yet. ``import torch`` finds the module that is in memory
(through the usual machinery, so that vivace's hook comes in as always), which saves three seconds of CPU time.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import json
import os
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
    gc.collect()
    gc.freeze()  # the collector writes to what it looks at, and every page written is copied
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


def become(script: str, folder: str, environment: dict[str, str], paths: list[str]) -> None:
    """As if this process had just been started with ``python SCRIPT`` in FOLDER."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    opened = (
        os.open(os.devnull, os.O_RDONLY),
        os.open("stdout.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        os.open("stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    )
    for number, stream in enumerate(opened):
        os.dup2(stream, number)
        os.close(stream)
    asked = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [os.path.dirname(script), *asked, *paths]
    sys.argv[:] = [script]
    sys.orig_argv[:] = [sys.executable, script]
    sys.meta_path.insert(0, _InMemory(sys.modules.pop("torch")))
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()


def run_main(script: str) -> None:
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = main
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, main.__dict__)


def paths_of_this_python() -> list[str]:
    """Without our own folder and what PYTHONPATH adds, which a script gets from its own environment."""
    added = [os.path.abspath(e) for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e]
    return [entry for entry in sys.path[1:] if entry not in added]


def next_script(paths: list[str], set_by_torch: dict[str, str]) -> str | None:
    """Returns in each forked process, with the script that it shall run; in this process at the end, with None."""
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            become(asked["script"], asked["folder"], {**set_by_torch, **asked["environment"]}, paths)
            return asked["script"]
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


if __name__ == "__main__":
    this_module = sys.modules["__main__"]  # stays alive while another module has its name
    set_by_torch = import_torch()
    asked_script = next_script(paths_of_this_python(), set_by_torch)
    if asked_script is not None:
        run_main(asked_script)
