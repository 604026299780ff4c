"""Called by the bootstrap right after ``import torch`` in the user's process: puts the asked practices in place.

Leaves ``practices-RANK-PID.json`` in the run's folder: for each word what was changed, or why nothing was. A process
that never trained but made parts that were refused leaves ``refused-RANK-PID.json``, with ``--strict``.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import sys
from pathlib import Path

from vivace.errors import UserError
from vivace.measure.inside.comparing import compile_cache, seeds
from vivace.practices.engine.change import Change
from vivace.practices.engine.parts import Parts
from vivace.practices.engine.probes import PROBES
from vivace.practices.engine.registry import get_practice, split_word
from vivace.practices.engine.trained import watch_training
from vivace.protocol.answers import PracticeAnswer, answers_to_text
from vivace.protocol.rank import rank_and_world
from vivace.protocol.request import ProcessRequest
from vivace.scale.place import ScalePlace

__all__ = ["change_of", "install"]


def install(request: ProcessRequest) -> None:
    changes = {word: change_of(word) for word in request.practices}
    for change in changes.values():
        change.same_draws = request.same_draws
    place = ScalePlace.take()
    if place is not None:
        for change in changes.values():
            change.over_ranks(place)
    if request.files_apart and (place is None or place.rank == 0):  # other ranks do so anyway
        from vivace.scale.files import keep_files_apart

        keep_files_apart(request.folder, makes_folders=True)
    told = _Told(request, changes)
    parts = Parts(list(changes.values()))
    compile_cache.install()
    parts.catch_what_measuring_goes_around()
    if request.measure:
        from vivace.measure.inside import install as measuring  # takes 0.1 s, which a training is not to wait for

        measuring.install(request)
    elif request.seed_offset is not None:
        seeds.install(request.seed_offset)
    if request.journal:
        from vivace.measure.inside import journal

        journal.install(Path(request.folder))
    parts.catch_the_rest()
    told.watch()
    watch_training(parts, told.on_step)


def change_of(word: str) -> Change:
    name, argument = split_word(word)
    if name in PROBES:
        return PROBES[name](argument)
    try:
        change = get_practice(name).change
    except UserError as error:
        raise RuntimeError(error.message) from None
    assert change is not None, f"{name} cannot be applied from outside"
    return change(argument)


class _Told:
    """What became of each practice. Written after a few steps (when every part exists), and at the end."""

    AFTER_STEPS = 2
    AT_LATEST = 6

    def __init__(self, request: ProcessRequest, changes: dict[str, Change]) -> None:
        self.request, self.changes = request, changes
        self.steps = 0
        self.told = False
        self.pid = os.getpid()

    def watch(self) -> None:
        atexit.register(self._at_exit)
        multiprocessing.util.Finalize(None, self._at_exit, exitpriority=1)

    def on_step(self) -> None:
        self.steps += 1
        if self.told or self.steps < self.AFTER_STEPS:
            return
        if self.steps >= self.AT_LATEST or not any(change.undecided for change in self.changes.values()):
            self.told = True
            self._write("practices")
            if self.request.strict:
                self._stop_unless_all_applied()

    def _stop_unless_all_applied(self) -> None:
        """Not at a refusal: one loader may have its workers already, and a later one be changed."""
        for word, answer in self.answers().items():
            if not answer.applied:
                if rank_and_world()[0] == 0:
                    sys.stderr.write(f"vivace: {word} does not apply: {answer} (--strict)\n")
                raise SystemExit(2)

    def _at_exit(self) -> None:
        """An exit code cannot be changed here: of fewer steps, the parent decides."""
        if self.steps:
            self._write("practices")
        elif self.request.strict and any(change.refused and not change.done for change in self.changes.values()):
            self._write("refused")  # perhaps no training at all: the launcher of ranks, a data preparation

    def answers(self) -> dict[str, PracticeAnswer]:
        return {word: change.answer() for word, change in self.changes.items()}

    def _write(self, name: str) -> None:
        if os.getpid() != self.pid:
            return  # a forked child
        with contextlib.suppress(OSError):
            path = Path(self.request.folder) / f"{name}-{rank_and_world()[0]}-{self.pid}.json"
            temporary = path.with_suffix(".tmp")
            temporary.write_text(answers_to_text(self.answers()))
            os.replace(temporary, path)
