"""Keeps compiled code of one number format out of runs in another.

Before pytorch pull request 181564, the key of torch.compile's AOTAutograd cache says whether autocast is on, but not in
which dtype. A job that compiles under one dtype then loads what was compiled under another: on an H200 with torch 2.11
a bf16 job ran the fp32 graph, 189 ms per step instead of 65. Here the dtype is put into the key, as that pull request
does. So a process that vivace is in neither loads such code nor leaves any behind, whatever cache folder it uses, and
caches stay warm. Without autocast the key stays as torch makes it. Other caches need nothing: FX graphs, Triton and
C++ kernels are kept by code that has the dtypes in it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import Any

import torch

__all__ = ["add_autocast_to_key", "install", "note"]

_MODULE = "torch._functorch._aot_autograd.autograd_cache"
_CLASS = "AOTAutogradCacheDetails"
_FEATURE = "autocast_state"  # what the pull request added to the key; torch that has it is left alone
_PULL_REQUEST = "https://github.com/pytorch/pytorch/pull/181564"

_keys_changed = 0


def install() -> None:
    """Now where torch's cache is imported already, else as soon as it is: importing it takes seconds."""
    module = sys.modules.get(_MODULE)
    if module is not None:
        add_autocast_to_key(module)
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())


def note() -> str | None:
    """For the record, where compiled code could have been mixed up; None where it could not."""
    if not _keys_changed:
        return None
    return (
        f"torch {torch.__version__} leaves the autocast dtype out of its compile cache's key ({_PULL_REQUEST}). vivace "
        "adds it. A run without vivace may load code that was compiled under another dtype: give each dtype its own "
        "TORCHINDUCTOR_CACHE_DIR, or update torch"
    )


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds the module as Python does, and changes it right after it was loaded. Then the finder is gone."""

    def __init__(self) -> None:
        self.asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _MODULE or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            self._change_after(spec.loader)
        return spec

    def _change_after(self, loader: Any) -> None:
        load = loader.exec_module

        def load_and_change(module: Any) -> None:
            load(module)
            add_autocast_to_key(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)

        loader.exec_module = load_and_change


def add_autocast_to_key(module: Any) -> None:
    """The key is a hash over all attributes of an object of this class."""
    details = getattr(module, _CLASS, None)
    if details is None or getattr(details.__init__, "_of_vivace", False):
        return
    original = details.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        state = _autocast_state() if not hasattr(self, _FEATURE) else {}
        if state:
            global _keys_changed
            _keys_changed += 1
            setattr(self, _FEATURE, state)

    init._of_vivace = True  # type: ignore[attr-defined]
    details.__init__ = init


def _autocast_state() -> dict[str, str]:
    """By device type, where autocast is on."""
    devices = getattr(torch._C, "_autocast_supported_devices", lambda: ["cuda", "cpu"])()
    return {
        device: str(torch.get_autocast_dtype(device)) for device in sorted(devices) if torch.is_autocast_enabled(device)
    }
