"""Where a rank waits for others, by the dimension of the layout that it talks over.

On a CPU the host waits, and every wait is marked: blocking collectives, waits for asynchronous ones (FSDP, pipelines)
and for functional ones (DTensor). On a GPU a stream waits: marked are the collectives that the training loop calls
itself and, where vivace splits the training over ranks, the waits for its own; the profiler sees the rest.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.compiler import is_compiling

from vivace.measure.inside.groups import dimension_of
from vivace.measure.inside.patches import in_place_of, unseen_by_dynamo
from vivace.measure.inside.steps.recorder import Recorder
from vivace.protocol.rank import is_split

__all__ = ["install"]

_NAMES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "broadcast", "all_to_all", "all_to_all_single", "barrier", "send", "recv",
    "all_gather_single", "reduce_scatter_single",  # new in torch 2.13
)  # fmt: skip
_STARTED = ("isend", "irecv", "batch_isend_irecv")  # these never wait
_FUNCTIONAL = "torch.distributed._functional_collectives"
_MOST_PENDING = 10_000  # functional results that nobody waited for: their memory may belong to others by now


class _Pending:
    """What was started and not waited for yet, with its dimension."""

    def __init__(self) -> None:
        self.works: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.tensors: dict[int, str] = {}

    def note(self, started: Any, dimension: str) -> None:
        if isinstance(started, (list, tuple)):
            for one in started:
                self.note(one, dimension)
        elif isinstance(started, dist.Work):
            self.works[started] = dimension
        elif isinstance(started, torch.Tensor):
            if len(self.tensors) > _MOST_PENDING:
                self.tensors.clear()
            self.tensors[_address(started)] = dimension


def install(recorder: Recorder) -> None:
    if not torch.distributed.is_available():
        return
    pending = _Pending()
    for name in (*_NAMES, *_STARTED):
        if (original := getattr(dist, name, None)) is None:
            continue
        watched = _watched(recorder, pending, original, blocks=name in _NAMES)
        setattr(dist, name, watched)
        setattr(sys.modules[original.__module__], name, watched)  # where it is defined: it pickles by that name
    _watch_works(recorder, pending)
    _watch_functional(recorder, pending)


def _all_waits(recorder: Recorder) -> bool:
    return (recorder.device is None or is_split()) and recorder.may_exchange()


def _watched(recorder: Recorder, pending: _Pending, original: Any, blocks: bool) -> Any:
    def collective(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not (recorder.here() or _all_waits(recorder)):
            return original(*args, **kwargs)
        dimension = recorder.exchanges_over = dimension_of(_group(args, kwargs))
        if not blocks:
            started = original(*args, **kwargs)
            pending.note(started, dimension)
            return started
        recorder.mark("comm+", dimension)
        try:
            started = original(*args, **kwargs)
            pending.note(started, dimension)
            return started
        finally:
            recorder.mark("comm-")

    return in_place_of(original, collective)


def _group(args: Any, kwargs: Any) -> Any:
    if kwargs.get("group") is not None:
        return kwargs["group"]
    for arg in args:
        if isinstance(arg, dist.ProcessGroup):
            return arg
        if isinstance(arg, list) and arg and isinstance(arg[0], dist.P2POp):
            return arg[0].group
    return None


def _watch_works(recorder: Recorder, pending: _Pending) -> None:
    work: Any = dist.Work
    original = work.wait

    def wait(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not _all_waits(recorder):
            return original(*args, **kwargs)
        recorder.mark("comm+", pending.works.get(args[0]) or recorder.exchanges_over)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.mark("comm-")

    work.wait = unseen_by_dynamo(wait)


def _watch_functional(recorder: Recorder, pending: _Pending) -> None:
    functional: Any = importlib.import_module(_FUNCTIONAL)
    for name, original in list(vars(functional).items()):
        if inspect.isfunction(original) and original.__module__ == _FUNCTIONAL and not name.startswith("_"):
            words = list(inspect.signature(original).parameters)
            if "group" in words:
                setattr(functional, name, _starting(recorder, pending, original, words.index("group")))
    original_wait = functional.wait_tensor

    def wait_tensor(tensor: Any) -> Any:
        if is_compiling() or not _all_waits(recorder):
            return original_wait(tensor)
        recorder.mark("comm+", pending.tensors.pop(_address(tensor), None) or recorder.exchanges_over)
        try:
            return original_wait(tensor)
        finally:
            recorder.mark("comm-")

    functional.wait_tensor = in_place_of(original_wait, wait_tensor)


def _starting(recorder: Recorder, pending: _Pending, original: Any, place: int) -> Any:
    def start(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not _all_waits(recorder):
            return original(*args, **kwargs)
        group = kwargs["group"] if "group" in kwargs else args[place] if len(args) > place else None
        dimension = recorder.exchanges_over = _dimension_of_functional(group)
        started = original(*args, **kwargs)
        pending.note(started, dimension)
        return started

    return in_place_of(original, start)


def _dimension_of_functional(group: Any) -> str:
    """A group, its name, a mesh, or a mesh and the number of its axis."""
    if isinstance(group, str):
        return _dimension_of_name(group)
    if isinstance(group, tuple) and len(group) == 2:
        mesh, axis = group
        return dimension_of(mesh.get_group(axis))
    return dimension_of(group)


@functools.lru_cache(maxsize=256)
def _dimension_of_name(name: str) -> str:
    resolve: Any = dist.distributed_c10d._resolve_process_group
    return dimension_of(resolve(name))


def _address(tensor: Any) -> int:
    """Of the memory, under whatever wrapper: results of functional collectives are wrapped until they are used."""
    return int(getattr(tensor, "elem", tensor).untyped_storage()._cdata)
