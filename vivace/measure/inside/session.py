"""The course of a measurement inside one process: warm-up, timed window, energy tail, profiler, sync points, the end.

Everything is driven from the end of an optimizer cycle (``on_step``), in the training thread. Stages follow each other
in the order of ``Stage``; each is a number of cycles long. Nothing before the end waits for the GPU.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import gc
import io
import multiprocessing.util
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from vivace.measure.inside import payload
from vivace.measure.inside.attendant import Attendant
from vivace.measure.inside.by_hand import ByHand, StandIn
from vivace.measure.inside.cycles import Cycles
from vivace.measure.inside.energy import EnergyMeter
from vivace.measure.inside.first_steps import FirstSteps
from vivace.measure.inside.flops import FlopCount, compiled_frames, something_was_compiled, uncounted
from vivace.measure.inside.kernels import ProfileWindow
from vivace.measure.inside.memory import allocator_counts, device_memory, devices_in_use, host_memory
from vivace.measure.inside.provenance import describe_devices
from vivace.measure.inside.recorder import Recorder
from vivace.measure.inside.supply import Feed, Moment
from vivace.measure.inside.syncs import SyncWatch
from vivace.measure.inside.warmup import WarmupDetector
from vivace.protocol.ending import ENDED_BY_ITSELF, Ended, Ending
from vivace.protocol.payload import SeenMemory, Status
from vivace.protocol.progress import SeenProgress
from vivace.protocol.rank import rank_and_world
from vivace.protocol.request import ProcessRequest

__all__ = ["Session", "Stage", "end_quickly"]

_ENERGY_WINDOW_S = 2.0  # the NVML counter is refreshed every 20 to 100 ms: two seconds keep that error below 5 %
_TAIL_STEPS_MAX = 2000
_NORM_STEPS = 8
_SPARE_STEPS = 4  # FLOPs are counted in one, and windows begin and end between steps
_MARKS_KEPT = 20_000
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
_RESTARTS_MAX = 3  # a script that makes a new optimizer every epoch must not keep us waiting for ever


_left_by_us: list[int] = []  # processes whose script we ended, alone and with its record written


def end_quickly() -> None:
    """After the script's own clean-up and exit handlers: what Python takes apart after them (workers' queues, gigabytes
    of shared and pinned memory, the CUDA context) can take many seconds, and the next trial waits for it."""
    if os.getpid() not in _left_by_us or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None):
        return
    _flush_files()
    os._exit(0)


def _flush_files() -> None:
    for file in (sys.stdout, sys.stderr, *_files_being_written()):
        with contextlib.suppress(Exception):
            file.flush()


def _files_being_written() -> list[Any]:
    """Files that the script never closes: Python would write their last lines when it takes them apart."""
    files = gc.get_objects()
    texts = [file for file in files if issubclass(type(file), io.TextIOWrapper)]
    return texts + [file for file in files if issubclass(type(file), (io.BufferedWriter, io.BufferedRandom))]


class Stage(enum.Enum):
    WAITING = "waiting for the first step"
    WARMUP = "warming up"
    FLOPS_EARLY = "counting FLOPs"
    WINDOW = "measuring"
    TAIL = "measuring energy"
    NORMS = "recording gradient norms"
    PROFILE = "profiling"
    SYNCS = "looking for sync points"
    FLOPS_LATE = "counting FLOPs, uncompiled"
    DONE = "done"


class Session:
    """One per process. ``loaders`` holds the settings of the DataLoaders seen."""

    def __init__(self, request: ProcessRequest, recorder: Recorder) -> None:
        self.request, self.recorder = request, recorder
        self.loaders: dict[str, Any] = {}
        self.feed = Feed()
        self.forwards: Any = None
        self.creations: Any = None
        self.debugging: Any = None
        self.first_steps = FirstSteps(request.grad_norms)
        self.by_hand = ByHand(recorder, self)
        self.began_s = time.perf_counter()
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self.stage = Stage.WAITING
        self.stage_steps = 0
        self.total_steps = 0
        self.cycles = Cycles()
        self.flops_step: int | None = None
        self.restarts = 0
        self.window: tuple[int, int] | None = None  # indices into the recorder's marks
        self.window_start: int | None = None
        self.warmup_done = 0
        self.before_window_s: float | None = None  # from the import of torch to the first timed step
        self.warmup_cut_short = False
        self.supply_at_start: Moment | None = None
        self.supply_at_end: Moment | None = None
        self.all_marks_kept = True
        self.frames_at_start = 0
        self.recompiled: int | None = None  # frames, in the window
        self.allocator_at_start: dict[str, int] | None = None
        self.allocator_at_end: dict[str, int] | None = None
        self.norms: dict[int, list[torch.Tensor]] = {}
        self.flops: FlopCount | None = None
        self.profile: dict[str, Any] | None = None
        self.syncs: SyncWatch | None = None
        self.memory: SeenMemory | None = None
        self.energy: EnergyMeter | None = None
        self.attendant: Attendant | None = None
        self.notes: list[str] = []
        self.written = False
        self.raised = 0
        self.rank, self.world = 0, 1
        self.device = torch.device("cpu")
        self._tool: Any = None
        self._profile_from = 0

    # -- beginning -------------------------------------------------------------------------------------------------

    def begin(self, device: torch.device) -> None:
        """At the first backward, and before the first optimizer step: the thread and device that step are the ones.

        (A backward in a helper thread or on the CPU may come first: a sanity check, an initialisation.)
        """
        if self.total_steps > 0 or self.recorder.given_up:
            return
        if self.attendant is None:
            self._start(device)
        elif threading.get_ident() != self.recorder.thread or device.type != self.device.type:
            self.device = device
            self.recorder.marks.clear()
            self.recorder.arm(device)

    def _start(self, device: torch.device) -> None:
        if device.type not in ("cuda", "cpu"):
            self.notes.append(f"device {device.type}: times are the host's, taken without synchronising")
        self.device = device
        self.rank, self.world = rank_and_world()
        self.recorder.arm(device)
        s = self.request
        after = s.steps + s.profile_steps + s.sync_steps + _NORM_STEPS + _SPARE_STEPS
        self.warmup = WarmupDetector(s.warmup_steps, several_ranks=self.world > 1, steps_after=after)
        self.attendant = Attendant(Path(self.request.folder), self._progress, self._sample_power, self._on_stop_request)
        self.attendant.start()
        atexit.register(self._at_exit)
        # Forked children of multiprocessing leave without atexit, but run their finalizers.
        multiprocessing.util.Finalize(None, self._at_exit, exitpriority=0)
        self._enter(Stage.WARMUP)

    def _sample_power(self) -> None:
        if self.energy is not None:
            self.energy.sample()

    def _progress(self) -> SeenProgress:
        total = {Stage.WINDOW: self.request.steps}.get(self.stage)
        return SeenProgress(self.rank, self.stage.value, self.stage_steps, total, self.total_steps)

    # -- steps -----------------------------------------------------------------------------------------------------

    def on_step(self, optimizer: Any, skipped: bool) -> None:
        """After every outermost optimizer step. An error of our own ends the measurement, never the training."""
        try:
            self._on_step(optimizer, skipped)
        except Exception as error:
            self._stop_measuring(error)

    def _stop_measuring(self, error: Exception) -> None:
        self.recorder.give_up()
        self.notes.append(f"vivace's own error: {type(error).__name__}: {error}")
        self._write(Status.PARTIAL, Ended(Ending.OWN_ERROR, self.notes[-1]))

    def _on_step(self, optimizer: Any, skipped: bool) -> None:
        was_by_hand = self.by_hand.optimizer_stepped()
        ends = self.cycles.step(optimizer)
        self.recorder.mark("opt-", {"ends_step": ends, "skipped": skipped, "by": id(optimizer)})
        if not ends:
            if self.stage is Stage.DONE:
                self._leave()
            return
        if self.cycles.changed or was_by_hand:
            self._begin_again()
        if was_by_hand and self.stage is Stage.WARMUP:
            self.flops = None  # of another kind of step
        self._end_step()

    def _end_step(self) -> None:
        if self.stage is Stage.DONE:
            self._leave()
        self.total_steps += 1
        self.stage_steps += 1
        self._advance()

    def before_step(self, optimizer: Any) -> None:
        """Before every outermost optimizer step."""
        if self.wants_norm():
            self.note_gradients(optimizer)
        if self.stage in (Stage.WARMUP, Stage.FLOPS_EARLY) and uncounted(self.first_steps.before, optimizer):
            self.warmup.forget_last()

    def begin_steps_by_hand(self, past_steps: int) -> None:
        """It is now known what a step is where no optimizer tells; ``past_steps`` are over."""
        self.total_steps += past_steps
        self.stage_steps += past_steps

    def before_hand_update(self, stand_in: StandIn) -> None:
        """Before what may be an update. Gradient norms go by steps: not before it is known what one is."""
        if self.by_hand.rhythm is not None:
            self.before_step(stand_in)
        elif uncounted(self.first_steps.before, stand_in):
            self.warmup.forget_last()

    def on_hand_step(self) -> None:
        """At the first sign of a new step. As ``on_step``."""
        try:
            self.recorder.mark("opt-", {"ends_step": True, "skipped": False, "by": None})
            self._end_step()
        except Exception as error:
            self._stop_measuring(error)

    def _begin_again(self) -> None:
        """What a step is has changed (another optimizer appeared): what was seen before is warm-up."""
        if self.stage in (Stage.WARMUP, Stage.WINDOW, Stage.FLOPS_EARLY) and self.restarts < _RESTARTS_MAX:
            if self.stage is Stage.FLOPS_EARLY and self.flops is not None:
                self.flops.finish()
                self.flops = None
            self.restarts += 1
            self.window_start = None
            self.warmup.restart()
            self._enter(Stage.WARMUP)

    def _advance(self) -> None:
        getattr(self, f"_during_{self.stage.name.lower()}")()

    def _enter(self, stage: Stage) -> None:
        self.stage, self.stage_steps = stage, 0

    def _during_warmup(self) -> None:
        self.warmup.step(time.perf_counter(), self.loaders, self.feed.supply())
        self._forget_old_marks()
        if self.total_steps == 1:
            return
        if self.request.count_flops and self.flops is None and not something_was_compiled():
            self._begin_flops(Stage.FLOPS_EARLY)
        elif self.warmup.is_over():
            self._open_window()

    def _forget_old_marks(self) -> None:
        """A warm-up may be long; only its last steps can still be of use."""
        marks = self.recorder.marks
        if len(marks) > _MARKS_KEPT:
            _code, ns, event, _extra = marks[-1]  # the mark that ended this step
            marks[:] = [("open", ns, event, None)]
            self.all_marks_kept = False

    def _begin_flops(self, stage: Stage) -> None:
        self.flops = FlopCount(where=self._where, roots=list(self.roots))
        self.flops_step = self.total_steps
        self._enter(stage)
        self.flops.begin()

    def _where(self) -> str:
        """What runs now, by the last mark: a root's forward with the loss after it, a backward, or something else."""
        code, _ns, _event, extra = self.recorder.marks[-1]
        if code in ("bwd+", "bwd="):
            return "backward with graph" if self.recorder.backward_makes_graph else "backward"
        in_forward = code == "fwd+" or (code == "fwd-" and extra is not None and extra["grad"])
        return "forward" if in_forward and not self.recorder.evaluating else "elsewhere"

    def _during_flops_early(self) -> None:
        assert self.flops is not None
        self.flops.finish()
        self._enter(Stage.WARMUP)
        self.warmup.forget_last()

    @property
    def roots(self) -> Any:
        return self.forwards.roots if self.forwards is not None else ()

    def known_roots(self) -> set[torch.nn.Module]:
        """Also those that were called before the first backward pass only, where first steps are looked at."""
        return {*self.roots, *self.first_steps.roots}

    def _open_window(self) -> None:
        self.first_steps.close()
        if self.forwards is not None:
            self.forwards.watches_padding = False
            if not something_was_compiled():
                self.forwards.narrow()
        self.warmup_done = self.total_steps
        self.warmup_cut_short = self.warmup.cut_short()
        self.supply_at_start = self.feed.moment()
        self.allocator_at_start = self._allocator_now()
        self.frames_at_start = compiled_frames()
        self.before_window_s = time.perf_counter() - self.began_s
        self.window_start = len(self.recorder.marks) - 1
        self.energy = EnergyMeter([device.uuid for device in describe_devices(devices_in_use())])
        self.energy.start()
        self._enter(Stage.WINDOW)

    def _during_window(self) -> None:
        if self.stage_steps < self.request.steps:
            return
        assert self.window_start is not None
        self.window = (self.window_start, len(self.recorder.marks))
        self.supply_at_end = self.feed.moment()
        self.allocator_at_end = self._allocator_now()
        self.recompiled = compiled_frames() - self.frames_at_start
        self.memory = self._memory_now()
        if self.forwards is not None:
            self.forwards.settle_padding()
        self._enter(Stage.TAIL)
        self._during_tail()

    def _allocator_now(self) -> dict[str, int] | None:
        with contextlib.suppress(Exception):  # counters are never worth a measurement
            return allocator_counts() if self.device.type == "cuda" else None
        return None

    def _memory_now(self) -> SeenMemory:
        return SeenMemory(devices=[device_memory(i) for i in devices_in_use()], host=host_memory())

    def _during_tail(self) -> None:
        """Go on until the energy window is long enough. Ranks must leave together: only a lone process may wait."""
        assert self.energy is not None
        steps = self.request.steps + self.stage_steps
        short = self.energy.handles and self.energy.seconds() < _ENERGY_WINDOW_S
        if short and self.world == 1 and self.stage_steps < _TAIL_STEPS_MAX:
            return
        self.energy.stop(steps)
        if self.request.grad_norms:
            self._enter(Stage.NORMS)
        else:
            self._begin_profile()

    def wants_norm(self) -> bool:
        """Gradient norms cost time: they are taken before and after the timed steps, never in them."""
        return self.request.grad_norms and self.stage in (Stage.WARMUP, Stage.NORMS)

    def note_gradients(self, optimizer: Any) -> None:
        with contextlib.suppress(Exception):
            gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            if not gradients:  # functional gradients are in no parameter
                return
            norm = torch.nn.utils.get_total_norm(gradients).detach()
            self.norms.setdefault(self.total_steps, []).append(norm)

    def _during_norms(self) -> None:
        if self.stage_steps >= _NORM_STEPS:
            self._begin_profile()

    def _begin_profile(self) -> None:
        if self.request.profile_steps > 0 and threading.current_thread() is not threading.main_thread():
            self.notes.append(
                "no profiler window: the training runs in a thread, and the profiler in the main one only"
            )
        elif self.request.profile_steps > 0 and not _profiler_is_on():
            try:
                self._tool = ProfileWindow(on_gpu=self.device.type == "cuda")
                self._tool.begin()
                self._profile_from = len(self.recorder.marks)
            except RuntimeError as error:
                self.notes.append(f"no profiler window: {error}")
            else:
                self._enter(Stage.PROFILE)
                return
        elif self.request.profile_steps > 0:
            self.notes.append("no profiler window: the script runs a profiler of its own")
        self._begin_syncs()

    def _during_profile(self) -> None:
        if self.stage_steps >= self.request.profile_steps:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.profile = self._tool.finish(self.stage_steps, self.recorder.marks[self._profile_from :])
            self._begin_syncs()

    def _begin_syncs(self) -> None:
        if self.device.type == "cuda" and self.request.sync_steps > 0:
            self.syncs = SyncWatch()
            self._enter(Stage.SYNCS)
            self.syncs.begin()
        else:
            self._begin_late_flops()

    def _during_syncs(self) -> None:
        assert self.syncs is not None
        if self.stage_steps >= self.request.sync_steps:
            self.syncs.finish()
            self._begin_late_flops()

    def _begin_late_flops(self) -> None:
        """A compiled model is counted last, in one uncompiled step, if that step is sure to fit."""
        if not self.request.count_flops or self.flops is not None:
            self._end()
        elif _memory_is_tight():
            self.notes.append("FLOPs not counted: the compiled model might not fit uncompiled")
            self._end()
        else:
            self._write(Status.COMPLETE, None)  # whatever the uncompiled step does, the figures are safe
            self.written = False
            self._begin_flops(Stage.FLOPS_LATE)

    def _during_flops_late(self) -> None:
        assert self.flops is not None
        self.flops.finish()
        self._end()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._enter(Stage.DONE)
        self._write(Status.COMPLETE, None)
        if self.attendant is not None and threading.current_thread() is not threading.main_thread():
            # Our SystemExit ends this thread only; the main one may wait for it for ever.
            self.notes.append("the training ran in a thread: the process is ended if it does not end by itself")
            self.attendant.leaving.set()
        self._leave()

    def _leave(self) -> None:
        """End the script from its training thread, so that its clean-up runs. Caught three times: end it for good."""
        self.raised += 1
        if self.world == 1:  # ranks may still be talking to each other
            _left_by_us.append(os.getpid())
        if self.raised > 3:
            atexit._run_exitfuncs()  # its own clean-up, and what it has buffered
            _flush_files()
            os._exit(0)
        raise SystemExit(0)

    def _at_exit(self) -> None:
        if self.stage is Stage.WAITING or self.attendant is None:
            return
        self.attendant.done.set()
        if self.written:
            return
        why = _why_it_ended()
        if self.window is None:
            self._write(Status.PARTIAL, why)
            return
        if self.stage is Stage.TAIL and self.energy is not None:
            self.energy.stop(self.request.steps + self.stage_steps)
        self.notes.append(
            f"the timed window is whole, but what comes after it is not: {why.text}, while {self.stage.value}"
        )
        self._write(Status.COMPLETE, None)

    def _on_stop_request(self, why: Ended) -> None:
        """From the attendant's thread, with the training thread perhaps hanging: touch nothing on the GPU."""
        self._write(Status.PARTIAL, why, touch_gpu=False)

    def _write(self, status: Status, reason: Ended | None, touch_gpu: bool = True) -> None:
        if self.written:
            return
        self.written = True
        try:
            payload.write(self, status, reason, touch_gpu)
        except Exception as error:  # the training is over or goes on: our record must not be what breaks it
            with contextlib.suppress(Exception):
                sys.stderr.write(f"vivace: the record could not be written: {type(error).__name__}: {error}\n")


def _profiler_is_on() -> bool:
    return bool(torch.autograd._profiler_enabled())


def _memory_is_tight() -> bool:
    return any(
        torch.cuda.memory_stats(i).get("reserved_bytes.all.peak", 0)
        > 0.5 * torch.cuda.get_device_properties(i).total_memory
        for i in devices_in_use()
    )


def _why_it_ended() -> Ended:
    """The uncaught exception, if one ended the process; its traceback is in the script's own output."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None:
        return ENDED_BY_ITSELF
    if isinstance(error, KeyboardInterrupt):
        return Ended(Ending.INTERRUPTED, "interrupted (Ctrl-C)")
    text = (str(error).splitlines() or [""])[0][:300]
    if isinstance(error, torch.OutOfMemoryError) or _OUT_OF_MEMORY.search(text):
        return Ended(Ending.OUT_OF_MEMORY, f"out of memory: {text}")
    return Ended(Ending.CRASHED, f"the script crashed: {type(error).__name__}: {text}")
