"""What one process hands to the parent: raw series and facts as JSON, one file a rank, written atomically.

No statistics here: the parent computes them, once, for every rank. Synchronises with the GPU, so it is called only
after the last measured step (or not at all, when the training thread may be hanging).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch

from vivace.measure.inside.by_hand import ByHand
from vivace.measure.inside.comparing import compile_cache
from vivace.measure.inside.counting.ceiling import matmul_ceiling_tflops
from vivace.measure.inside.counting.flops import FlopCount
from vivace.measure.inside.facts.compiling import describe_compiling
from vivace.measure.inside.facts.input_shapes import describe_input_shapes, elements_of
from vivace.measure.inside.facts.memory import devices_in_use, memory_now
from vivace.measure.inside.facts.provenance import describe_devices, describe_process
from vivace.measure.inside.facts.structure import describe_structure
from vivace.measure.inside.stages.course import Course
from vivace.measure.inside.stages.gradient_norms import GradientNorms
from vivace.measure.inside.stages.timed_window import TimedWindow
from vivace.measure.inside.steps.one_off import first_of_its_size
from vivace.measure.inside.steps.recorder import gpu_marks, host_marks
from vivace.measure.inside.steps.timeline import PHASES, Step, Timeline, split
from vivace.measure.inside.training import Training
from vivace.protocol.ending import Ended
from vivace.protocol.gpu_names import find_by_name
from vivace.protocol.payload import (
    Clock,
    Payload,
    SeenCeiling,
    SeenExchanges,
    SeenParameters,
    SeenValidation,
    Series,
    Status,
)  # fmt: skip
from vivace.protocol.rank import is_split, restart_count

__all__ = ["write"]

_BACKWARDS = 20  # first steps whose backward passes are counted


def write(
    training: Training, course: Course, by_hand: ByHand, status: Status, ended: Ended | None, touch_gpu: bool
) -> None:
    """Build the payload and put it into the run's folder as ``rank-R-HOST-PID.json``."""
    text = _build(training, course, by_hand, status, ended, touch_gpu).to_text()
    folder = Path(training.request.folder)
    name = f"rank-{training.rank}-{socket.gethostname()}-{os.getpid()}"  # nodes share the folder
    temporary = folder / f".{name}.tmp"
    temporary.write_text(text)
    os.replace(temporary, folder / f"{name}.json")


def _build(
    training: Training, course: Course, by_hand: ByHand, status: Status, ended: Ended | None, touch_gpu: bool
) -> Payload:
    window, flops = course.window, course.counted.count
    raw, first_is_warmup = _measured_marks(training, window)
    timelines = _timelines(raw, training.on_gpu and touch_gpu, training.notes)
    if first_is_warmup:  # never a figure from the first call, nor from the step that was slowed down to count FLOPs
        timelines = {clock: _without(timeline, {0, course.counted.number}) for clock, timeline in timelines.items()}
    main = timelines.get("gpu") or timelines["host"]
    every = _every_step(training) if course.warm_up.all_marks_kept else []
    indices = devices_in_use() if touch_gpu else []
    samples, tokens = _inputs(training, main.steps)
    may_read = touch_gpu or not training.on_gpu
    return Payload(
        status=status,
        ended=ended,
        rank=training.rank,
        world=training.world,
        restart=restart_count(),
        split=is_split(),
        pid=os.getpid(),
        device=str(training.device),
        clock=Clock.GPU if "gpu" in timelines else Clock.HOST,
        warmup_steps=training.steps - len(main.steps) if first_is_warmup else window.steps_before,
        total_steps=training.steps,
        why_no_steps=by_hand.why_no_steps() if training.steps == 0 else None,
        series=_series(main),
        host_series=_series(timelines["host"]) if "gpu" in timelines else None,
        samples=samples,
        tokens=tokens,
        losses=_losses(main.steps) if may_read else [],
        skipped_steps=sum(step.skipped for step in main.steps),
        optimizers=len({mark[3]["by"] for mark in raw if mark[0] == "opt-" and mark[3]} - {None}),
        micro_batches=_per_step([_micro_batches(step) for step in main.steps]),
        validation=_validation(main),
        loaders=list(training.loaders.values()),
        supply=window.supply(),
        flops=flops.seen() if flops is not None else None,
        ceiling=_ceiling(training, flops) if touch_gpu and status is Status.COMPLETE else None,
        memory=window.memory or (memory_now() if touch_gpu else None),
        energy=window.energy.result if window.energy else None,
        energy_why_not=window.energy.why_not if window.energy else None,
        exchanges=_exchanges(flops),
        profile=course.profiler.seen,
        syncs=course.syncs.seen(),
        sampling=course.lines.seen,
        histograms=course.histograms.seen,
        no_core_ms=window.no_core_ms,
        host_memory_series=window.memory_series.host if window.memory_series else None,
        gpu_memory_series=window.memory_series.gpu if window.memory_series else None,
        compiling=describe_compiling(),
        devices=describe_devices(indices),
        process=describe_process(),
        written_at=time.time(),
        parameters=_parameters(training),
        before_window_s=window.seconds_before,
        trajectory=_losses(every) if may_read else [],
        gradient_norms=_gradient_norms(course.norms) if may_read else {},
        first_steps=training.first_steps.as_dict(),
        backwards=[len(step.backwards) for step in every[:_BACKWARDS]],
        input_shapes=_input_shapes(every or main.steps),
        forwards_per_step=_per_step([len(step.shapes) for step in main.steps]),
        one_off_step=first_of_its_size(main.steps),
        input_elements=[elements_of(step) for step in main.steps],
        inputs=describe_input_shapes(main.steps, _before_the_window(every, window)),
        allocator=window.allocator(),
        recompiled=window.recompiled,
        gradient_syncs=_per_step([_gradient_syncs(step) for step in main.steps]) if _wraps(main.steps) else None,
        structure=describe_structure(training, flops, profiling=course.stage in (course.profiler, course.gaps)),
        notes=list(dict.fromkeys(_notes(training, by_hand))),  # built twice where FLOPs are counted late
    )


def _exchanges(counted: FlopCount | None) -> dict[str, SeenExchanges]:
    if counted is None:
        return {}
    seen = counted.exchanges
    return {over: SeenExchanges(calls, seen.bytes[over]) for over, calls in seen.calls.items()}


def _notes(training: Training, by_hand: ByHand) -> list[str]:
    mixed_up = compile_cache.note()
    return [*training.notes, *by_hand.notes(), *([mixed_up] if mixed_up else [])]


def _input_shapes(steps: list[Step]) -> int:
    """Different ones that went into the model, or into all models of a step together: a GAN's two networks have one
    shape each, and that is no variation."""
    return min(len({step.shapes for step in steps}), len({shape for step in steps for shape in step.shapes}))


def _before_the_window(every: list[Step], window: TimedWindow) -> list[Step]:
    return every[: window.steps_before] if window.first_mark is not None else []


def _wraps(steps: list[Step]) -> bool:
    """Whether a DistributedDataParallel runs in these steps."""
    return any(forward["syncs"] is not None for step in steps for forward in step.forwards)


def _gradient_syncs(step: Step) -> int:
    """Forwards after which a DistributedDataParallel exchanges gradients; one a step is enough."""
    return sum(bool(forward["syncs"]) for forward in step.forwards if forward["grad"])


def _measured_marks(training: Training, window: TimedWindow) -> tuple[list[Any], bool]:
    """The marks of the window; of what there was of it; or, when it never opened, of all but the first step."""
    marks, first = training.recorder.marks, window.first_mark
    if first is not None and (window.is_whole or any(_ends_step(mark) for mark in marks[first + 1 :])):
        return _opened(marks[first : window.last_mark]), False
    return list(marks), True


def _opened(marks: list[Any]) -> list[Any]:
    """The window begins where the step before it ended: that mark is only a time here."""
    _code, ns, event, _extra = marks[0]
    return [("open", ns, event, None), *marks[1:]]


def _ends_step(mark: Any) -> bool:
    return mark[0] == "opt-" and bool(mark[3]) and mark[3]["ends_step"]


def _timelines(raw: list[Any], read_gpu: bool, notes: list[str]) -> dict[str, Timeline]:
    timelines = {"host": split(host_marks(raw))}
    if read_gpu:
        # A broken context (a device assert, a lost GPU) still leaves the host's clock.
        try:
            torch.cuda.synchronize()
            timelines["gpu"] = split(gpu_marks(raw))
        except RuntimeError as error:
            notes.append(f"times are the host's: the GPU's could not be read ({str(error).splitlines()[0]})")
    return timelines


def _without(timeline: Timeline, left_out: set[int | None]) -> Timeline:
    timeline.steps = [step for number, step in enumerate(timeline.steps) if number not in left_out]
    return timeline


def _series(timeline: Timeline) -> Series:
    steps = timeline.steps
    phases = {phase: [round(step.phases_ms[phase], 5) for step in steps] for phase in PHASES}
    exchanges = {
        over: [round(step.exchanges_ms.get(over, 0.0), 5) for step in steps]
        for over in sorted({over for step in steps for over in step.exchanges_ms})
    }
    return Series([round(step.total_ms, 5) for step in steps], phases, exchanges)


def _validation(timeline: Timeline) -> SeenValidation:
    return SeenValidation(
        total_ms=timeline.validation_ms,
        batches=timeline.validation_batches,
        runs=timeline.validation_runs,
        with_grad_ms=timeline.validation_with_grad_ms,
    )


def _inputs(training: Training, steps: list[Step]) -> tuple[list[int], list[int]]:
    """Samples and tokens of every step: what the loaders delivered, or what went into the forwards."""
    sizes = {id(root): sum(p.numel() for p in root.parameters()) for root in training.roots}
    fetched = [sum(step.fetched) for step in steps]
    fetches = sum(len(step.fetched) for step in steps)
    forwards = [[f for f in step.forwards if f["grad"]] for step in steps]
    by_root: dict[int, list[list[Any]]] = {}
    for index, step_forwards in enumerate(forwards):
        for forward in step_forwards:
            if forward["root"] not in by_root:
                by_root[forward["root"]] = [[] for _ in steps]
            by_root[forward["root"]][index].append(forward)
    # Of several networks that every step calls, the one called least often sees each sample once (a discriminator sees
    # it three times); one that only some steps call is an auxiliary.
    calls = {root: sum(map(len, forwards_of_root)) for root, forwards_of_root in by_root.items()}
    order = sorted((r for r in calls if calls[r] >= 0.9 * len(steps)), key=lambda r: (calls[r], -sizes.get(r, 0)))
    samples = [sum(f["samples"] or 0 for f in step) for step in by_root[order[0]]] if order else []
    # Fewer fetches than steps: the batches are used several times, count what was trained on.
    if fetches >= 0.9 * len(steps) and any(fetched):
        samples = fetched
    largest = max(by_root, key=lambda root: sizes.get(root, 0), default=None)
    tokens = [sum(f["tokens"] or 0 for f in step) for step in by_root[largest]] if largest is not None else []
    return samples, tokens if any(tokens) else []


def _losses(steps: list[Step]) -> list[float | None]:
    """The scalar that each step followed: the sum over its backward passes (accumulation, several losses); where an
    optimizer calls a closure many times, that of the first call."""
    losses: list[float | None] = []
    with contextlib.suppress(RuntimeError):
        for step in steps:
            parts = [float(loss) for loss in step.losses if loss is not None]
            losses.append(sum(parts) if parts else None)
    return losses


def _every_step(training: Training) -> list[Step]:
    """Since the first, timed or not: their losses are what two runs of one script are compared by."""
    return split(host_marks(training.recorder.marks)).steps


def _gradient_norms(norms: GradientNorms) -> dict[str, float]:
    """By number of the step; of several optimizers together."""
    with contextlib.suppress(RuntimeError):
        return {str(step): sum(float(n) ** 2 for n in parts) ** 0.5 for step, parts in norms.seen.items()}
    return {}


def _micro_batches(step: Step) -> int:
    """Backward passes, but no more than batches that were fetched: some go twice over one (SAM, a GAN)."""
    return min(len(step.backwards), len(step.fetched)) if step.fetched else len(step.backwards)


def _per_step(counts: list[int]) -> float | None:
    return sum(counts) / len(counts) if counts else None


def _parameters(training: Training) -> SeenParameters:
    unique = {id(p): p for root in training.roots for p in root.parameters()}
    return SeenParameters(
        total=sum(p.numel() for p in unique.values()),
        trainable=sum(p.numel() for p in unique.values() if p.requires_grad),
    )


def _ceiling(training: Training, flops: FlopCount | None) -> SeenCeiling | None:
    """Only where the catalogue knows no peak for the device: a matrix product measured now."""
    if flops is None or not flops.by_type:
        return None
    arithmetic = max(flops.by_type, key=flops.by_type.__getitem__)
    if training.on_gpu and _in_catalogue(training, arithmetic):
        return None
    with contextlib.suppress(RuntimeError):
        return SeenCeiling(arithmetic, matmul_ceiling_tflops(training.device, arithmetic))
    return None


def _in_catalogue(training: Training, arithmetic: str) -> bool:
    gpu = find_by_name(torch.cuda.get_device_name(training.device), training.request.known_gpus)
    return gpu is not None and arithmetic in gpu.arithmetics
