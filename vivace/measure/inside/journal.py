"""Keeps the journal of a training that races (``protocol/journal.py``): little is done at a step, all else in a thread.

The clock of a race begins with the first batch that is asked for, or the first call of a network. Steps are those of
the optimizer that steps most often (a GAN has two), backward passes where there is none. Samples are those of the
network that sees most of them, in forwards that a backward may follow; with several ranks, of all of them together.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, get_worker_info

from vivace.measure.inside.facts.batches import describe_inputs
from vivace.measure.inside.facts.energy import EnergyMeter
from vivace.measure.inside.patches import in_place_of, unseen_by_dynamo
from vivace.protocol.journal import Kind, Note, fingerprint, journal_name
from vivace.protocol.rank import is_split, rank_and_world

__all__ = ["install"]

_CLOSEST_S = 0.05  # between two notes of steps; the last one before an evaluation is written in any case
_PERIOD_S = 0.1
_ENERGY_S = 1.0
_MOST_LINES = 20  # of one print


class _Journal:
    def __init__(self, folder: Path) -> None:
        self.folder, self.pid = folder, os.getpid()
        self.lock = threading.Lock()
        self.file: Any = None
        self.began = False
        self.steps: dict[int, int] = {}  # by optimizer
        self.samples: dict[int, int] = {}  # by network
        self.backwards = 0
        self.waiting: Note | None = None
        self.written_at = 0.0
        self.inside = self.in_backward = False
        self.compiling_since: float | None = None

    def here(self) -> bool:
        """Not in a forked child, nor in a worker of a DataLoader."""
        return os.getpid() == self.pid and get_worker_info() is None

    def begin(self) -> None:
        if not self.began and self.here():
            self.began = True
            self.write(Note(Kind.BEGIN, time.time()))
            threading.Thread(target=self._beside, name="vivace-journal", daemon=True).start()

    def step(self, optimizer: Any) -> None:
        if self.here():
            self.begin()
            self.steps[id(optimizer)] = self.steps.get(id(optimizer), 0) + 1
            self._note_steps()

    def pause(self) -> None:
        """Perhaps an evaluation begins, and the command may be ended after it: the last step must be known."""
        waiting = self.waiting
        if waiting is not None and self.here():
            self.write(waiting)

    def after_backward(self) -> None:
        self.backwards += 1
        if not self.steps and self.here():
            self._note_steps()

    def printed(self, text: str) -> None:
        """Before it is printed: who reads it may do so much later."""
        if not self.began or not self.here():
            return
        lines = [line for line in text.splitlines()[:_MOST_LINES] if any(map(str.isdigit, line))]
        now = self._now(Kind.PRINTED)
        if lines:
            self.write(*(replace(now, line=fingerprint(line)) for line in lines))

    def _now(self, kind: Kind) -> Note:
        samples = max(self.samples.values(), default=0) or None
        if samples is not None and not is_split():
            samples *= rank_and_world()[1]
        return Note(kind, time.time(), max(self.steps.values(), default=self.backwards), samples)

    def _note_steps(self) -> None:
        note = self._now(Kind.STEP)
        if note.at - self.written_at < _CLOSEST_S:
            self.waiting = note
            return
        self.write(*[one for one in (self.waiting, note) if one is not None])

    def write(self, *notes: Note) -> None:
        with self.lock, contextlib.suppress(OSError):
            if self.file is None:
                self.file = open(self.folder / journal_name(rank_and_world()[0], self.pid), "a")  # noqa: SIM115
            self.file.write("".join(note.to_line() for note in notes))
            self.file.flush()
            if any(note.kind is Kind.STEP for note in notes):
                self.waiting, self.written_at = None, notes[-1].at

    def _beside(self) -> None:
        """A thread: the last step before an evaluation is written soon, for the command may be ended then."""
        meter, energy_at = None, 0.0
        while self.here():
            time.sleep(_PERIOD_S)
            self.pause()
            if not torch.cuda.is_initialized() or time.monotonic() - energy_at < _ENERGY_S:
                continue
            energy_at = time.monotonic()
            meter = meter or _meter()
            joules = meter.total_joules()
            if joules is not None:
                self.write(Note(Kind.ENERGY, time.time(), joules=joules))


def install(folder: Path) -> None:
    journal = _Journal(folder)
    atexit.register(journal.pause)
    _watch_steps(journal)
    _watch_loaders(journal)
    _watch_forwards(journal)
    _watch_backwards(journal)
    _watch_compiling(journal)
    _watch_printing(journal)


def _meter() -> EnergyMeter:
    from vivace.measure.inside.facts.memory import devices_in_use
    from vivace.measure.inside.facts.provenance import describe_devices

    return EnergyMeter([device.uuid for device in describe_devices(devices_in_use())])


def _watch_steps(journal: _Journal) -> None:
    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        journal.step(optimizer)

    after._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_post_hook(unseen_by_dynamo(after))


def _watch_loaders(journal: _Journal) -> None:
    original = DataLoader.__iter__

    def start(self: Any) -> Any:
        journal.begin()
        journal.pause()
        return original(self)

    DataLoader.__iter__ = in_place_of(original, start)  # type: ignore[method-assign]


def _watch_forwards(journal: _Journal) -> None:
    """The outermost calls of networks. Once a step was made, only the classes of networks that train are watched."""
    original = torch.nn.Module.__call__
    kinds: set[type] = set()

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        inner = MethodType(original, self)
        if journal.inside or journal.in_backward or is_compiling() or not journal.here():
            return inner(*args, **kwargs)
        if next(self.parameters(), None) is None:
            return inner(*args, **kwargs)
        journal.begin()
        if torch.is_grad_enabled():
            kinds.add(type(self))
            samples = describe_inputs(args, kwargs)[0]
            if samples is not None:
                journal.samples[id(self)] = journal.samples.get(id(self), 0) + samples
        else:
            journal.pause()
        journal.inside = True
        try:
            return inner(*args, **kwargs)
        finally:
            journal.inside = False
            if journal.steps and torch.nn.Module.__call__ is ours:
                _narrow(kinds, original, ours)

    ours = in_place_of(original, call)
    torch.nn.Module.__call__ = ours  # type: ignore[method-assign]


def _narrow(kinds: set[type], original: Any, ours: Any) -> None:
    torch.nn.Module.__call__ = original  # type: ignore[method-assign]
    for kind in kinds:
        if kind.__call__ is original:
            kind.__call__ = ours  # type: ignore[method-assign]


def _watch_backwards(journal: _Journal) -> None:
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        journal.begin()
        journal.in_backward = True
        try:
            return original(*args, **kwargs)
        finally:
            journal.in_backward = False
            journal.after_backward()

    torch.autograd.backward = in_place_of(original, backward)


def _watch_printing(journal: _Journal) -> None:
    original = builtins.print

    def print_(*args: Any, **kwargs: Any) -> None:
        if kwargs.get("file") in (None, sys.stdout, sys.stderr) and not is_compiling():
            with contextlib.suppress(Exception):  # what cannot be made a text fails below, as without us
                text = (" " if kwargs.get("sep") is None else kwargs["sep"]).join(map(str, args))
                journal.printed(text)
                args = (text,)
        original(*args, **kwargs)

    builtins.print = in_place_of(original, print_)


def _watch_compiling(journal: _Journal) -> None:
    """dynamo takes a second to import: it is asked only once the script compiles something."""
    original = torch.compile
    asked = False

    def compile_(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        result = original(*args, **kwargs)
        if not asked and "torch._dynamo" in sys.modules:
            asked = True
            with contextlib.suppress(Exception):  # private parts of torch: without them compiling counts as training
                _register(journal)
        return result

    torch.compile = in_place_of(original, compile_)


def _register(journal: _Journal) -> None:
    from torch._dynamo.callback import callback_handler

    def started(*_: Any) -> None:
        journal.compiling_since = journal.compiling_since or time.time()

    def ended(*_: Any) -> None:
        if journal.compiling_since is not None:
            since, now = journal.compiling_since, time.time()
            journal.compiling_since = None
            journal.write(Note(Kind.COMPILED, now, seconds=now - since))

    callback_handler.register_start_callback(started)
    callback_handler.register_end_callback(ended)
