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
from typing import TYPE_CHECKING, Any

import torch

from vivace.measure.inside import compile_cache
from vivace.measure.inside.ceiling import matmul_ceiling_tflops
from vivace.measure.inside.input_shapes import describe_input_shapes, elements_of
from vivace.measure.inside.memory import allocator_use, devices_in_use
from vivace.measure.inside.one_off import first_of_its_size
from vivace.measure.inside.provenance import describe_devices, describe_process
from vivace.measure.inside.recorder import gpu_marks, host_marks
from vivace.measure.inside.structure import describe_structure
from vivace.measure.inside.timeline import PHASES, Step, Timeline, split
from vivace.protocol.ending import Ended
from vivace.protocol.gpu_names import find_by_name
from vivace.protocol.payload import (
    Clock,
    Payload,
    SeenCeiling,
    SeenParameters,
    SeenSupply,
    SeenValidation,
    Series,
    Status,
)  # fmt: skip
from vivace.protocol.rank import restart_count

if TYPE_CHECKING:
    from vivace.measure.inside.session import Session

__all__ = ["write"]

_BACKWARDS = 20  # first steps whose backward passes are counted


def write(session: Session, status: Status, ended: Ended | None, touch_gpu: bool) -> None:
    """Build the payload and put it into the run's folder as ``rank-R-HOST-PID.json``."""
    text = _build(session, status, ended, touch_gpu).to_text()
    folder = Path(session.request.folder)
    name = f"rank-{session.rank}-{socket.gethostname()}-{os.getpid()}"  # nodes share the folder
    temporary = folder / f".{name}.tmp"
    temporary.write_text(text)
    os.replace(temporary, folder / f"{name}.json")


def _build(session: Session, status: Status, ended: Ended | None, touch_gpu: bool) -> Payload:
    on_gpu = session.device.type == "cuda"
    raw, first_is_warmup = _measured_marks(session)
    timelines = _timelines(raw, on_gpu and touch_gpu, session.notes)
    if first_is_warmup:  # never a figure from the first call, nor from the step that was slowed down to count FLOPs
        timelines = {clock: _without(timeline, {0, session.flops_step}) for clock, timeline in timelines.items()}
    main = timelines.get("gpu") or timelines["host"]
    every = _every_step(session)
    indices = devices_in_use() if touch_gpu else []
    samples, tokens = _inputs(session, main.steps)
    return Payload(
        status=status,
        ended=ended,
        rank=session.rank,
        world=session.world,
        restart=restart_count(),
        pid=os.getpid(),
        device=str(session.device),
        clock=Clock.GPU if "gpu" in timelines else Clock.HOST,
        warmup_steps=session.total_steps - len(main.steps) if first_is_warmup else session.warmup_done,
        total_steps=session.total_steps,
        why_no_steps=session.by_hand.why_no_steps() if session.total_steps == 0 else None,
        series=_series(main),
        host_series=_series(timelines["host"]) if "gpu" in timelines else None,
        samples=samples,
        tokens=tokens,
        losses=_losses(main.steps) if touch_gpu or not on_gpu else [],
        skipped_steps=sum(step.skipped for step in main.steps),
        optimizers=len({mark[3]["by"] for mark in raw if mark[0] == "opt-" and mark[3]} - {None}),
        micro_batches=_per_step([_micro_batches(step) for step in main.steps]),
        validation=_validation(main),
        loaders=list(session.loaders.values()),
        supply=_supply(session),
        flops=session.flops.seen() if session.flops is not None else None,
        ceiling=_ceiling(session, indices) if touch_gpu and status is Status.COMPLETE else None,
        memory=session.memory or (session._memory_now() if touch_gpu else None),
        energy=session.energy.result if session.energy else None,
        energy_why_not=session.energy.why_not if session.energy else None,
        profile=session.profile,
        syncs=session.syncs.as_list(session.request.sync_steps) if session.syncs else [],
        devices=describe_devices(indices),
        process=describe_process(),
        written_at=time.time(),
        parameters=_parameters(session),
        before_window_s=session.before_window_s,
        trajectory=_losses(every) if touch_gpu or not on_gpu else [],
        gradient_norms=_gradient_norms(session) if touch_gpu or not on_gpu else {},
        first_steps=session.first_steps.as_dict(),
        backwards=[len(step.backwards) for step in every[:_BACKWARDS]],
        input_shapes=_input_shapes(every or main.steps),
        forwards_per_step=_per_step([len(step.shapes) for step in main.steps]),
        one_off_step=first_of_its_size(main.steps),
        input_elements=[elements_of(step) for step in main.steps],
        inputs=describe_input_shapes(main.steps, _before_the_window(every, session)),
        allocator=allocator_use(session.allocator_at_start, session.allocator_at_end, session.request.steps),
        recompiled=session.recompiled,
        gradient_syncs=_per_step([_gradient_syncs(step) for step in main.steps]) if _wraps(main.steps) else None,
        structure=describe_structure(session),
        notes=list(dict.fromkeys(_notes(session))),  # built twice where FLOPs are counted late
    )


def _notes(session: Session) -> list[str]:
    mixed_up = compile_cache.note()
    return [*session.notes, *session.by_hand.notes(), *([mixed_up] if mixed_up else [])]


def _input_shapes(steps: list[Step]) -> int:
    """Different ones that went into the model, or into all models of a step together: a GAN's two networks have one
    shape each, and that is no variation."""
    return min(len({step.shapes for step in steps}), len({shape for step in steps for shape in step.shapes}))


def _before_the_window(every: list[Step], session: Session) -> list[Step]:
    return every[: session.warmup_done] if session.window_start is not None else []


def _wraps(steps: list[Step]) -> bool:
    """Whether a DistributedDataParallel runs in these steps."""
    return any(forward["syncs"] is not None for step in steps for forward in step.forwards)


def _gradient_syncs(step: Step) -> int:
    """Forwards after which a DistributedDataParallel exchanges gradients; one a step is enough."""
    return sum(bool(forward["syncs"]) for forward in step.forwards if forward["grad"])


def _measured_marks(session: Session) -> tuple[list[Any], bool]:
    """The marks of the window; of what there was of it; or, when it never opened, of all but the first step."""
    marks = session.recorder.marks
    if session.window is not None:
        return _opened(marks[session.window[0] : session.window[1]]), False
    if session.window_start is not None and any(_ends_step(mark) for mark in marks[session.window_start + 1 :]):
        return _opened(marks[session.window_start :]), False
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
    return Series([round(step.total_ms, 5) for step in steps], phases)


def _validation(timeline: Timeline) -> SeenValidation:
    return SeenValidation(
        total_ms=timeline.validation_ms,
        batches=timeline.validation_batches,
        runs=timeline.validation_runs,
        with_grad_ms=timeline.validation_with_grad_ms,
    )


def _inputs(session: Session, steps: list[Step]) -> tuple[list[int], list[int]]:
    """Samples and tokens of every step: what the loaders delivered, or what went into the forwards."""
    sizes = {id(root): sum(p.numel() for p in root.parameters()) for root in session.roots}
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
    """The scalar that each step followed: the sum over its backward passes (accumulation, several losses)."""
    losses: list[float | None] = []
    with contextlib.suppress(RuntimeError):
        for step in steps:
            parts = [float(loss) for loss in step.backwards if loss is not None]
            losses.append(sum(parts) if parts else None)
    return losses


def _every_step(session: Session) -> list[Step]:
    """Since the first, timed or not: their losses are what two runs of one script are compared by."""
    return split(host_marks(session.recorder.marks)).steps if session.all_marks_kept else []


def _gradient_norms(session: Session) -> dict[str, float]:
    """By number of the step; of several optimizers together."""
    with contextlib.suppress(RuntimeError):
        return {str(step): sum(float(n) ** 2 for n in norms) ** 0.5 for step, norms in session.norms.items()}
    return {}


def _micro_batches(step: Step) -> int:
    """Backward passes, but no more than batches that were fetched: some go twice over one (SAM, a GAN)."""
    return min(len(step.backwards), len(step.fetched)) if step.fetched else len(step.backwards)


def _per_step(counts: list[int]) -> float | None:
    return sum(counts) / len(counts) if counts else None


def _supply(session: Session) -> SeenSupply:
    start, end = session.supply_at_start, session.supply_at_end
    used = end.batches - start.batches if start and end and start.epochs == end.epochs else None
    return SeenSupply(
        ready_at_start=start.ready if start else None,
        ready_at_end=end.ready if end else None,
        used=used,
        warmup_cut_short=session.warmup_cut_short,
    )


def _parameters(session: Session) -> SeenParameters:
    unique = {id(p): p for root in session.roots for p in root.parameters()}
    return SeenParameters(
        total=sum(p.numel() for p in unique.values()),
        trainable=sum(p.numel() for p in unique.values() if p.requires_grad),
    )


def _ceiling(session: Session, indices: list[int]) -> SeenCeiling | None:
    """Only where the catalogue knows no peak for the device: a matrix product measured now."""
    if session.flops is None or not session.flops.by_type:
        return None
    arithmetic = max(session.flops.by_type, key=session.flops.by_type.__getitem__)
    if session.device.type == "cuda" and _in_catalogue(session, arithmetic):
        return None
    with contextlib.suppress(RuntimeError):
        return SeenCeiling(arithmetic, matmul_ceiling_tflops(session.device, arithmetic))
    return None


def _in_catalogue(session: Session, arithmetic: str) -> bool:
    gpu = find_by_name(torch.cuda.get_device_name(session.device), session.request.known_gpus)
    return gpu is not None and arithmetic in gpu.arithmetics
