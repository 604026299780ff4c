"""First on PYTHONPATH of a measured command: lets vivace into the process without an edit to the script.

Python imports ``sitecustomize`` at start-up. This one runs the user's own ``sitecustomize`` (the next on the
path), then, if a measurement was asked for, waits for ``import torch`` and installs the hooks right after it.
A process that never imports torch pays one entry in ``sys.meta_path`` and nothing else. Standard library only, and
readable by Python 3.6, so that a Python that is too old is told so.
"""

import atexit
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_REQUEST_VARIABLE = "VIVACE_INSIDE"
_SCALE_VARIABLE = "VIVACE_SCALE"
_OLDEST_PYTHON = (3, 9)
_OTHER_VIVACE = "another vivace"  # as vivace.protocol.ending.Ending, which cannot be imported yet
_CANNOT_MEASURE = "cannot be measured"
_to_call_last: "list[Any]" = []


def _run_the_next_sitecustomize() -> None:
    """Behave as if we were not here: the user's own ``sitecustomize`` must still run."""
    path = [entry for entry in sys.path if os.path.abspath(entry or os.getcwd()) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _Borrowed(importlib.abc.MetaPathFinder):
    """Finds ``vivace`` and ``pynvml`` where vivace is installed, when the user's environment has neither.

    Last on ``sys.meta_path``: whatever the user has wins, and nothing else of our environment leaks in.
    """

    NAMES = ("vivace", "pynvml")

    def __init__(self, folders: "list[str]") -> None:
        self.folders = folders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if path is None and name in self.NAMES:
            return importlib.machinery.PathFinder.find_spec(name, self.folders)
        return None


class _AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports torch as usual, then installs the hooks, then steps aside."""

    def __init__(self, request_text: str) -> None:
        self.request_text = request_text
        self.real: Any = None
        self.asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Libraries ask for torch's spec long before they import it: stay until it is really loaded."""
        if name != "torch" or self.asking:
            return None
        self.asking = True
        try:
            self.real = importlib.util.find_spec("torch")
        finally:
            self.asking = False
        if self.real is None or self.real.loader is None:
            return None
        spec = importlib.machinery.ModuleSpec(
            "torch",
            self,
            origin=self.real.origin,
            is_package=self.real.submodule_search_locations is not None,
        )
        spec.submodule_search_locations = self.real.submodule_search_locations
        spec.has_location = self.real.has_location
        spec.cached = self.real.cached
        return spec

    def create_module(self, spec: Any) -> Any:
        return self.real.loader.create_module(self.real)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = self.real.loader
        module.__loader__ = self.real.loader
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.real.loader.exec_module(module)
        _install(self.request_text)


def _install(request_text: str) -> None:
    """Whatever goes wrong in here is ours: say so, and let the training run unmeasured."""
    request = json.loads(request_text)
    if sys.version_info < _OLDEST_PYTHON:
        _tell(_CANNOT_MEASURE, _versions() + ": this Python is too old", request["folder"])
        return
    try:
        other = _another_vivace(request["protocol"])
        if other is not None:
            _tell(_OTHER_VIVACE, other, request["folder"])
            return
        from vivace.door import enter

        _to_call_last.append(enter(request_text))
    except Exception as error:
        _tell(_CANNOT_MEASURE, f"{_versions()}: {type(error).__name__}: {error}", request["folder"])


def _another_vivace(asked: int) -> Any:
    """The user's environment may have a vivace of its own, which is imported instead of ours: can we talk to it?"""
    import vivace

    spoken = _protocol_of(vivace)
    if spoken == asked:
        return None
    version = getattr(vivace, "__version__", "of unknown version")
    speaks = f"protocol {spoken}" if spoken is not None else "no protocol"
    where = next(iter(getattr(vivace, "__path__", ())), None) or getattr(vivace, "__file__", "a place unknown")
    return (
        f"the command's Python has another vivace, {version} in {where}, which speaks {speaks}; "
        f"this one speaks protocol {asked}"
    )


def _protocol_of(package: Any) -> Any:
    """None where this package has no protocol. An editable install elsewhere would lend it a module: not its own."""
    with contextlib.suppress(ImportError, AttributeError):
        version = importlib.import_module("vivace.protocol.version")
        home = os.path.dirname(os.path.dirname(os.path.realpath(str(version.__file__))))
        if home in [os.path.realpath(folder) for folder in package.__path__]:
            return version.PROTOCOL
    return None


def _versions() -> str:
    torch = getattr(sys.modules.get("torch"), "__version__", "of unknown version")
    return f"vivace cannot enter this process (Python {sys.version.split()[0]}, torch {torch})"


def _tell(kind: str, why: str, folder: str) -> None:
    """Once on stderr, and as ``vivace.protocol.unmeasured`` reads it: for the command to decide on."""
    sys.stderr.write(f"vivace: nothing is measured or changed: {why}\n")
    path = os.path.join(folder, f"unmeasured-{os.getpid()}.json")
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
        json.dump({"kind": kind, "text": why}, file)


def _last_of_all() -> None:
    """Registered before any exit handler of the script, so it runs after all of them."""
    for function in _to_call_last:
        function()


def _same_chance_on_every_rank() -> None:
    """Draws before ``import torch``: a script without a seed must draw the same on all ranks (``vivace.scale``)."""
    text = os.environ.get(_SCALE_VARIABLE)
    if text:
        import random

        random.seed(json.loads(text).get("seed"))


_request_text = os.environ.get(_REQUEST_VARIABLE)
if _request_text:
    _same_chance_on_every_rank()
    atexit.register(_last_of_all)
try:
    _run_the_next_sitecustomize()
finally:
    if _request_text:
        sys.meta_path.append(_Borrowed(os.environ.get("VIVACE_HOME", "").split(os.pathsep)))
        if "torch" in sys.modules:
            _install(_request_text)
        else:
            sys.meta_path.insert(0, _AfterTorch(_request_text))
