"""``measure``: run a training command, unedited, and say where its time, memory and energy go."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.hardware.catalogue import known_gpus
from vivace.hardware.machine import this_machine
from vivace.hardware.software import Software
from vivace.measure.command import Outcome, Progress, Sink, run_command
from vivace.measure.copied_folder import CopyOptions, copied_folder, own_folder, point_at_the_original
from vivace.measure.elsewhere import machine_elsewhere
from vivace.measure.folder import DEFAULT_RUNS, name_of_command, new_run_folder, shared_run_folder
from vivace.measure.inside.attendant import STOP_FILE
from vivace.measure.merge import merge
from vivace.measure.peers import Peers, find_peers
from vivace.measure.ranks import read_payloads
from vivace.measure.standard_input import standard_input, terminal_hint
from vivace.measure.told import read_told
from vivace.measure.written_files import look, what_changed
from vivace.protocol.ending import TIME_OVER, Ended, Ending
from vivace.protocol.payload import Payload
from vivace.protocol.progress import SeenProgress
from vivace.protocol.request import Entry, ProcessRequest
from vivace.protocol.scale_report import REPORTS
from vivace.protocol.unmeasured import UNMEASURED, read_unmeasured
from vivace.protocol.version import ProtocolError
from vivace.records.machine import Machine
from vivace.records.measurement import Measurement
from vivace.records.scale import read_split_facts

__all__ = ["Measured", "Request", "measure"]

RECORD = "measurement.json"
_COMES_IN = (
    "vivace comes in through PYTHONPATH: a command that replaces it, clears its environment, or runs `python -I` or "
    "`python -E` cannot be measured"
)
_HINTS = {
    Ending.OTHER_VIVACE: "install the same vivace in both, or run the vivace of that Python",
    Ending.CANNOT_MEASURE: "vivace measures Python 3.9 and torch 2.4, and newer; the training itself ran unchanged",
}
_HISTOGRAM_STEPS = 3
_SMALLEST_ROOM = 2**20  # bytes: a record takes some hundred thousand


@dataclass(frozen=True)
class Request:
    """What to measure and how long. ``warmup_steps`` None: detect it. ``profile`` false: no profiler window."""

    command: tuple[str, ...]
    steps: int = 50
    warmup_steps: int | None = None
    profile: bool = True
    flops: bool = True
    lines: bool = False
    """Sample the host's stack in steps of their own, for the ledger."""
    histograms: bool = False
    """Count the magnitudes of activations and gradients in steps of their own."""
    timeout_s: float | None = None
    output: Path = DEFAULT_RUNS
    name: str | None = None
    folder: Path | None = None
    """An existing folder for the record, instead of a new one under ``output``."""
    practices: tuple[str, ...] = ()
    entry: Entry = Entry.MEASURING
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()
    """Stands before the command when it is started: what splits it over ranks. No part of the command in the record."""
    seed_offset: int | None = None
    grad_norms: bool = False
    copy: CopyOptions | None = None
    """Run in a copy of the working folder."""
    notices_files: bool = False
    """Look for files of the working folder that the command changes."""
    same_draws: bool = False
    files_apart: bool = False
    """What the script writes goes nowhere. Not caught: libraries that write from C, and programs that it starts."""
    repeated: bool = False
    """The command runs more than once: each run gets the same standard input."""


@dataclass(frozen=True)
class Measured:
    """The record, its folder, and how the command ended.

    The record is None when nothing could be measured (``message`` says why), or when a peer has it (no message).
    """

    measurement: Measurement | None
    folder: Path
    outcome: Outcome
    message: str | None = None
    hint: str | None = None
    ending: Ending | None = None
    """Where there is no record: why the process says it ended."""


def measure(request: Request, sink: Sink, progress: Progress) -> Measured:
    """Run the command of ``request``; its output goes to ``sink``, how far it is to ``progress``."""
    _check(request)
    peers = find_peers() if request.folder is None else None
    if peers is not None and request.copy is not None:
        raise UserError("--in-copy cannot be used under srun: each task would copy the folder", hint="leave it out")
    folder = request.folder or _folder(request, peers)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    asked = ProcessRequest(
        folder=str(folder.resolve()),
        steps=request.steps,
        warmup_steps=request.warmup_steps,
        profile_steps=3 if request.profile else 0,
        sync_steps=3 if request.profile else 0,
        count_flops=request.flops,
        lines=request.lines,
        histogram_steps=_HISTOGRAM_STEPS if request.histograms else 0,
        grad_norms=request.grad_norms,
        same_draws=request.same_draws,
        files_apart=request.files_apart,
        seed_offset=request.seed_offset,
        practices=request.practices,
        entry=request.entry,
        known_gpus=known_gpus(),
    )
    try:
        suffix = peers.log_suffix if peers else ""
        own = own_folder(Path.cwd(), folder)
        before = look(Path.cwd(), own) if request.notices_files and request.copy is None else None
        with _working_folder(request, folder) as place:
            outcome = run_command(
                (*request.launcher, *request.command), asked, sink, progress, request.timeout_s, request.environment,
                suffix, place, standard_input() if request.repeated else None,
            )  # fmt: skip
        written = what_changed(before, look(Path.cwd(), own)) if before is not None else None
    except UserError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    notes = [f"ran in a copy of {Path.cwd()}"] if request.copy is not None else []
    if peers is not None:
        peers.tell_the_end(folder, outcome.exit_code)
        if not peers.is_first:
            return Measured(None, folder, outcome)
        if (ended := peers.wait_for_all(folder)) < peers.count:
            notes.append(
                f"{peers.count - ended} of {peers.count} tasks were killed, or still ran when the first had ended"
            )
    folder_gone = not folder.is_dir()
    payloads, unread = _answers_of_the_processes(folder)
    told, scale = read_told(folder), read_split_facts(folder)
    torch_imported = any(folder.glob("imported-*"))
    seen = _Seen(
        torch_imported,
        steps=_steps_in_progress(folder),
        disk_full=_is_full(folder),
        folder_gone=folder_gone,
        unmeasured=read_unmeasured(folder) or unread or _own_error(payloads),
    )
    _tidy(folder)
    if not any(payload.total_steps for payload in payloads):
        end = payloads[0].ended if payloads else None
        message, hint = _why_nothing(request, outcome, seen, payloads)
        why = seen.unmeasured or end
        return Measured(None, folder, outcome, message, hint, why.kind if why else None)
    if not folder.is_dir():  # the script cleaned it up under us; the record must not be lost for that
        folder.mkdir(parents=True, exist_ok=True)
    record = merge(
        payloads,
        _machine_of(payloads[0]),
        request.command,
        {**request.environment, **os.environ},
        str(folder),
        started_at,
        notes,
        practices=told,
    )
    record = _with_outcome(record, outcome).model_copy(update={"written_files": written, "scale": scale})
    record.save(folder / RECORD)
    return Measured(record, folder, outcome)


@contextlib.contextmanager
def _working_folder(request: Request, folder: Path) -> Iterator[Path | None]:
    """Where the command runs: in a copy, or (None) here."""
    if request.copy is None:
        yield None
        return
    with copied_folder(Path.cwd(), folder, request.copy) as copy:
        yield copy
        point_at_the_original(list(folder.glob("rank-*.json")), copy, Path.cwd())


def _folder(request: Request, peers: Peers | None) -> Path:
    name = request.name or name_of_command(request.command)
    if peers is None:
        return new_run_folder(request.output, name)
    return shared_run_folder(request.output, f"{name}-{peers.step}", peers.end_file)


def _check(request: Request) -> None:
    if not request.command:
        raise UserError("no command to measure", hint="vivace measure -- python train.py …")
    if request.steps < 1:
        raise UserError(f"--steps must be at least 1, not {request.steps}")
    if request.warmup_steps is not None and request.warmup_steps < 0:
        raise UserError(f"--warmup must be 0 or more, not {request.warmup_steps}")
    if request.timeout_s is not None and request.timeout_s <= 0:
        raise UserError(f"--timeout must be above 0 seconds, not {request.timeout_s:g}")


def _with_outcome(record: Measurement, outcome: Outcome) -> Measurement:
    """A rank that was killed cannot say so itself."""
    if record.status == "complete":
        if outcome.exit_code == 0:
            return record
        note = f"the measurement is complete; the command then ended with exit code {outcome.exit_code}"
        return record.model_copy(update={"notes": (*record.notes, note)})
    reason, ending = record.reason, record.ending
    if outcome.interrupted and ending is Ending.ENDED_BY_ITSELF:
        reason, ending = "interrupted", Ending.INTERRUPTED
    elif outcome.timed_out:
        reason, ending = reason or TIME_OVER.text, ending or TIME_OVER.kind
    elif outcome.exit_code == 137:
        reason = f"{reason or 'killed (SIGKILL)'}; the kernel kills a process that takes too much memory"
        ending = ending if ending is Ending.OUT_OF_MEMORY else Ending.KILLED
    elif outcome.exit_code != 0:
        reason, ending = reason or f"the command ended with exit code {outcome.exit_code}", ending or Ending.FAILED
    status: Any = "partial" if reason else record.status
    return record.model_copy(update={"status": status, "reason": reason, "ending": ending})


def _machine_of(payload: Payload) -> Machine:
    """With the versions that the measured process has told. They are its own, and torch need not be imported here."""
    process = payload.process
    machine = _machine(Software(**process.software), tuple(process.missing_software))
    if process.host != machine.hostname:
        return machine_elsewhere(machine, process, payload.devices)
    if payload.devices and not machine.gpus:  # no NVML: torch is asked for them after all
        return _machine(None)
    return machine


@functools.cache
def _machine(software: Software | None, missing: tuple[str, ...] = ()) -> Machine:
    """It does not change between the trials of a tune."""
    return this_machine(software, missing)


@dataclass(frozen=True)
class _Seen:
    """What the processes left behind besides their payloads."""

    torch_imported: bool
    steps: int
    disk_full: bool
    folder_gone: bool
    unmeasured: Ended | None
    """Why vivace could not enter a process, or gave up in it."""


def _answers_of_the_processes(folder: Path) -> tuple[list[Payload], Ended | None]:
    """Or why they cannot be read: the process has another vivace, whose version of the protocol has the same number."""
    try:
        return read_payloads(folder), None
    except ProtocolError as error:
        return [], Ended(Ending.OTHER_VIVACE, f"the command's Python has another vivace: {error}")


def _own_error(payloads: Sequence[Payload]) -> Ended | None:
    ends = (payload.ended for payload in payloads)
    return next((end for end in ends if end is not None and end.kind is Ending.OWN_ERROR), None)


def _steps_in_progress(folder: Path) -> int:
    """The steps that a process had done when it last told; it may have been killed before it could write more."""
    steps = 0
    for path in folder.glob("progress-*.json"):
        with contextlib.suppress(OSError, ValueError):
            steps = max(steps, SeenProgress.from_text(path.read_text()).steps)
    return steps


def _is_full(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free < _SMALLEST_ROOM
    return False


def _tidy(folder: Path) -> None:
    """The payloads and progress files have served; the record, the logs stay."""
    for pattern in (
        "rank-*.json",
        "progress-*.json",
        "practices-*.json",
        "imported-*",
        REPORTS,
        UNMEASURED,
        STOP_FILE,
        ".rank-*.tmp",
        ".progress-*.tmp",
    ):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()


def _why_nothing(
    request: Request, outcome: Outcome, seen: _Seen, payloads: Sequence[Payload]
) -> tuple[str, str | None]:
    """The most helpful sentence for a run without a payload."""
    hint: str | None
    ended = f"exit code {outcome.exit_code}"
    if seen.disk_full:
        return (
            f"nothing measured: no space is left on the disk for the record ({ended})",
            "free some space, or use --output on another disk",
        )
    if seen.folder_gone:
        return (
            f"nothing measured: the command deleted the run's folder, {request.folder or request.output} ({ended})",
            "use --output with a folder that the command does not touch",
        )
    if seen.unmeasured:
        return f"nothing measured: {seen.unmeasured.text}", _HINTS.get(seen.unmeasured.kind)
    if seen.steps:
        killed = " The kernel kills a process that takes too much memory." if outcome.exit_code == 137 else ""
        return f"nothing measured: the training was ended after {seen.steps} steps ({ended}).{killed}", None
    if outcome.timed_out:
        hint = "raise --timeout" if seen.torch_imported else f"raise --timeout; {_COMES_IN}"
        return f"nothing measured: no training step within {request.timeout_s:g} s", hint
    if outcome.interrupted:
        hint = None if seen.torch_imported else f"if it was training already: {_COMES_IN}"
        return "nothing measured: interrupted before the first training step", hint
    if outcome.exit_code != 0:
        reason = payloads[0].ended if payloads else None
        why = f": {reason.text}" if reason else ""
        hint = terminal_hint() if request.repeated else None
        return f"nothing measured: the command ended before its first training step was done ({ended}){why}", hint
    if not seen.torch_imported:
        return (
            f"nothing measured: the command never imported torch, or kept vivace out of its Python ({ended})",
            _COMES_IN,
        )
    told = [p.why_no_steps for p in payloads if p.why_no_steps]
    why = told[0] if told else "no backward pass and no optimizer step was seen"
    return (
        f"nothing measured: torch was imported, but {why} ({ended})",
        "vivace finds the steps by torch.optim optimizers and GradScaler, or by backward passes after which parameters "
        "change; training with torch.func is not seen",
    )
