"""The course of a measurement inside one process, driven by the steps of the training.

The patches call ``begin``, ``before_step`` and ``on_step`` in the training thread. The session counts the steps, walks
through the stages (their order: ``stages/course.py``) and writes the payload. Nothing before the end waits for the GPU.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from vivace.measure.inside import payload
from vivace.measure.inside.attendant import Attendant
from vivace.measure.inside.by_hand import ByHand, StandIn
from vivace.measure.inside.counting.flops import uncounted
from vivace.measure.inside.leaving import Exit, why_it_ended
from vivace.measure.inside.stages.course import Course
from vivace.measure.inside.steps.recorder import Recorder
from vivace.measure.inside.training import Training
from vivace.protocol.ending import Ended, Ending
from vivace.protocol.payload import Status
from vivace.protocol.progress import SeenProgress
from vivace.protocol.rank import rank_and_world
from vivace.protocol.request import ProcessRequest
from vivace.protocol.unmeasured import tell_unmeasured

__all__ = ["Session"]


class Session:
    """One per process."""

    def __init__(self, request: ProcessRequest, recorder: Recorder) -> None:
        self.recorder = recorder
        self.training = Training(request, recorder)
        self.by_hand = ByHand(self.training, self)
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self.training.reset()
        self.course = Course(self.training, save=self._save)
        self.attendant: Attendant | None = None
        self.exit = Exit()
        self.written = False

    # -- beginning -------------------------------------------------------------------------------------------------

    def begin(self, device: torch.device) -> None:
        """At the first backward, and before the first optimizer step: the thread and device that step are the ones.

        (A backward in a helper thread or on the CPU may come first: a sanity check, an initialisation.)
        """
        if self.training.steps > 0 or self.recorder.given_up:
            return
        if self.attendant is None:
            self._start(device)
        elif threading.get_ident() != self.recorder.thread or device.type != self.training.device.type:
            self.training.device = device
            self.recorder.marks.clear()
            self.recorder.arm(device)

    def _start(self, device: torch.device) -> None:
        training = self.training
        if device.type not in ("cuda", "cpu"):
            training.notes.append(f"device {device.type}: times are the host's, taken without synchronising")
        training.device = device
        training.rank, training.world = rank_and_world()
        self.recorder.arm(device)
        self.course.start()
        folder = Path(training.request.folder)
        self.attendant = Attendant(folder, self._progress, self._sample_power, self._on_stop_request)
        self.attendant.start()
        atexit.register(self._at_exit)
        # Forked children of multiprocessing leave without atexit, but run their finalizers.
        multiprocessing.util.Finalize(None, self._at_exit, exitpriority=0)

    def _sample_power(self) -> None:
        if self.course.window.energy is not None:
            self.course.window.energy.sample()

    def _progress(self) -> SeenProgress:
        stage, training = self.course.stage, self.training
        done, of = (stage.steps, stage.of) if stage is not None else (0, None)
        return SeenProgress(training.rank, self.course.says, done, of, training.steps)

    # -- steps -----------------------------------------------------------------------------------------------------

    def before_step(self, optimizer: Any) -> None:
        """Before every outermost optimizer step."""
        stage, course = self.course.stage, self.course
        if self.training.request.grad_norms and stage is not None and stage.takes_norms:
            course.norms.note(optimizer)
        if stage is course.warm_up and uncounted(self.training.first_steps.before, optimizer):
            course.warm_up.forget_last()

    def on_step(self, optimizer: Any, skipped: bool) -> None:
        """After every outermost optimizer step. An error of our own ends the measurement, never the training."""
        try:
            self._on_step(optimizer, skipped)
        except Exception as error:
            self._stop_measuring(error)

    def _on_step(self, optimizer: Any, skipped: bool) -> None:
        was_by_hand = self.by_hand.optimizer_stepped()
        cycles = self.training.cycles
        ends = cycles.step(optimizer)
        self.recorder.mark("opt-", {"ends_step": ends, "skipped": skipped, "by": id(optimizer)})
        if not ends:
            if self.course.is_over:
                self._leave()
            return
        if cycles.changed or was_by_hand:
            self.course.begin_again()
        warm_up = self.course.warm_up
        if was_by_hand and self.course.stage is warm_up and not warm_up.counting:
            self.course.counted.forget()  # of another kind of step
        self._end_step()

    def _end_step(self) -> None:
        if self.course.is_over:
            self._leave()
        self.training.steps += 1
        self.course.step()
        if self.course.is_over:
            self._end()

    def _stop_measuring(self, error: Exception) -> None:
        self.recorder.give_up()
        self.course.leave()
        self.training.notes.append(f"vivace's own error: {type(error).__name__}: {error}")
        self._write(Status.PARTIAL, Ended(Ending.OWN_ERROR, self.training.notes[-1]))

    # -- steps that no optimizer tells -------------------------------------------------------------------------------

    def begin_steps_by_hand(self, past_steps: int) -> None:
        """It is now known what a step is where no optimizer tells; ``past_steps`` are over."""
        self.training.steps += past_steps
        if self.course.stage is not None:
            self.course.stage.steps += past_steps

    def before_hand_update(self, stand_in: StandIn) -> None:
        """Before what may be an update. Gradient norms go by steps: not before it is known what one is."""
        if self.by_hand.rhythm is not None:
            self.before_step(stand_in)
        elif uncounted(self.training.first_steps.before, stand_in):
            self.course.warm_up.forget_last()

    def on_hand_step(self) -> None:
        """At the first sign of a new step. As ``on_step``."""
        try:
            self.recorder.mark("opt-", {"ends_step": True, "skipped": False, "by": None})
            self._end_step()
        except Exception as error:
            self._stop_measuring(error)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._write(Status.COMPLETE, None)
        if self.attendant is not None and threading.current_thread() is not threading.main_thread():
            # Our SystemExit ends this thread only; the main one may wait for it for ever.
            self.training.notes.append(
                "the training ran in a thread: the process is ended if it does not end by itself"
            )
            self.attendant.leaving.set()
        self._leave()

    def _leave(self) -> None:
        self.exit.leave(alone=self.training.world == 1)

    def _at_exit(self) -> None:
        if self.attendant is None:
            return
        self.attendant.done.set()
        self.course.leave()
        if self.written:
            return
        why, course = why_it_ended(), self.course
        if not course.window.is_whole:
            self._write(Status.PARTIAL, why)
            return
        if course.stage in (course.lines, course.second_look) and course.lines.steps:
            course.lines.close()
            course.second_look.close()
            self._write(Status.COMPLETE, None)
            return
        if course.stage is course.tail:
            course.tail.close()
        self.training.notes.append(
            f"the timed window is whole, but what comes after it is not: {why.text}, while {course.says}"
        )
        self._write(Status.COMPLETE, None)

    def _on_stop_request(self, why: Ended) -> None:
        """From the attendant's thread, with the training thread perhaps hanging: touch nothing on the GPU."""
        self._write(Status.PARTIAL, why, touch_gpu=False)

    def _save(self) -> None:
        """What was seen so far; what comes is written over it."""
        self._write(Status.COMPLETE, None)
        self.written = False

    def _write(self, status: Status, ended: Ended | None, touch_gpu: bool = True) -> None:
        if self.written:
            return
        self.written = True
        try:
            payload.write(self.training, self.course, self.by_hand, status, ended, touch_gpu)
        except Exception as error:  # the training is over or goes on: our record must not be what breaks it
            why = f"vivace's own error: the record could not be written: {type(error).__name__}: {error}"
            tell_unmeasured(Path(self.training.request.folder), Ended(Ending.OWN_ERROR, why))
            with contextlib.suppress(Exception):
                sys.stderr.write(f"vivace: {why}\n")
