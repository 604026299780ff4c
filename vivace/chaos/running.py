"""``vivace chaos``: starts the job, lets the fault come, starts it again if it ended, and hands all to ``judging``."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from vivace.chaos.ballast import BALLAST
from vivace.chaos.judging import judge
from vivace.chaos.life import Blow, Lived, live
from vivace.chaos.rotting import flip_a_bit
from vivace.errors import UserError
from vivace.measure.command import Sink
from vivace.measure.folder import new_run_folder
from vivace.measure.starting import environment_for
from vivace.protocol.chaos import VARIABLE, ChaosOrder, Fault
from vivace.protocol.request import Entry, ProcessRequest
from vivace.records.chaos import Chaos

__all__ = ["ChaosRequest", "run_chaos"]

RECORD = "chaos.json"
_MOST_TO_FILL = 4 * 2**30
_FROM_OUTSIDE = {Fault.KILL: signal.SIGKILL, Fault.STOP: signal.SIGSTOP}
_RESTARTS = {Fault.KILL: 1, Fault.STOP: 1, Fault.HANG: 1, Fault.WORKER: 1, Fault.BIT_ROT: 1}


@dataclass(frozen=True)
class ChaosRequest:
    """``step`` None: a random one, from ``seed``. ``after_s``: by the clock instead, from outside (kill and stop)."""

    command: tuple[str, ...]
    fault: Fault
    output: Path
    rank: int = 0
    step: int | None = None
    after_s: float | None = None
    delay_s: float = 0.5
    slow_steps: int = 10
    checkpoints: Path | None = None
    restarts: int | None = None
    patience_s: float = 120.0
    timeout_s: float | None = None
    seed: int | None = None


def run_chaos(request: ChaosRequest, sink: Sink, on_step: Callable[[int], None]) -> Chaos:
    _check(request)
    dice = random.Random(request.seed)
    step = request.step if request.step is not None else dice.randint(3, 20)
    folder = new_run_folder(request.output.absolute(), f"chaos-{request.fault}")
    fill = request.checkpoints if request.fault is Fault.DISK_FULL else None
    order = ChaosOrder(
        folder=str(folder / "life-0"),
        fault=None if request.after_s is not None else request.fault,
        rank=request.rank,
        step=step,
        delay_s=request.delay_s,
        slow_steps=request.slow_steps,
        fill=None if fill is None else str(fill.absolute()),
    )
    blow = None
    if request.after_s is not None:
        blow = Blow(_FROM_OUTSIDE[request.fault], request.rank, request.after_s)
    lives, rotten = [_life(request, order, sink, on_step, blow)], None
    if fill is not None:
        (fill / BALLAST).unlink(missing_ok=True)
    if _struck(lives[0]) and request.fault is Fault.BIT_ROT:
        assert request.checkpoints is not None
        rotten = flip_a_bit(request.checkpoints, dice)
    restarts = _RESTARTS.get(request.fault, 0) if request.restarts is None else request.restarts
    while _struck(lives[0]) and lives[-1].exit_code != 0 and len(lives) <= restarts:
        again = ChaosOrder(folder=str(folder / f"life-{len(lives)}"))
        lives.append(_life(request, again, sink, on_step, None, lives[0].lines.shapes))
    record = judge(
        request.command, request.fault, request.rank, step, lives, rotten, folder, fill is not None, request.slow_steps
    )
    record.save(folder / RECORD)
    return record


def _struck(lived: Lived) -> bool:
    return lived.lines.fault_at is not None


def _life(
    request: ChaosRequest,
    order: ChaosOrder,
    sink: Sink,
    on_step: Callable[[int], None],
    blow: Blow | None,
    known: Collection[str] = (),
) -> Lived:
    folder = Path(order.folder)
    folder.mkdir()
    inside = ProcessRequest(folder=order.folder, entry=Entry.NOTHING, measure=False)
    environment = {**environment_for(inside, os.environ), VARIABLE: order.to_text()}
    environment.setdefault("PYTHONUNBUFFERED", "1")  # a pipe would hold the job's words back
    sys.stdout.flush()
    limits = (request.patience_s, request.timeout_s)
    return live(request.command, environment, folder, sink, *limits, on_step, blow, known)


def _check(request: ChaosRequest) -> None:
    fault, place = request.fault, request.checkpoints
    if fault is Fault.BIT_ROT and place is None:
        raise UserError("bit-rot needs to know where the job saves", hint="--folder FOLDER, where its checkpoints are")
    if request.after_s is not None and fault not in _FROM_OUTSIDE:
        able = ", ".join(_FROM_OUTSIDE)
        raise UserError(f"--after works from outside of the job, for {able} only; {fault} comes at a --step")
    if fault is Fault.DISK_FULL and place is not None:
        if not place.is_dir():
            raise UserError(f"{place} is no folder", hint="--folder FOLDER, on the disk that is to be full")
        free = shutil.disk_usage(place).free
        if free > _MOST_TO_FILL:
            raise UserError(
                f"the disk of {place} has {free / 2**30:.0f} GiB free: vivace fills small disks only (at most "
                f"{_MOST_TO_FILL / 2**30:.0f} GiB)",
                hint="leave out --folder (then no file of that rank can grow), or mount a small tmpfs there",
            )
