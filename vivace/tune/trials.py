"""One trial: the user's command in a fresh process with a set of practices. Out of memory and crashes are results.

A trial is a folder (``trial.json``, logs). A trial whose record is already there is not run again.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.measure.command import Progress, Sink
from vivace.measure.copied_folder import CopyOptions
from vivace.measure.measuring import Measured, Request, measure
from vivace.measure.own_error import last_lines
from vivace.measure.standard_input import terminal_hint
from vivace.practices.engine.registry import environment_of
from vivace.protocol.ending import Ending
from vivace.protocol.request import Entry
from vivace.records.base import RecordError, last_line
from vivace.records.privacy import safe_command, safe_text
from vivace.records.trial import Outcome, Trial
from vivace.scale.launcher import over_ranks
from vivace.tune.queued import marked, queued_s
from vivace.tune.short_scripts import ended_by_itself, has_enough, says_too_few

__all__ = ["TrialSettings", "does_not_train", "environment_of", "run_trial"]

RECORD = "trial.json"
_LAST_LINES = 3
# As torch words it, for the GPU and the host; a script that only talks about memory does not match.
_NO_MEMORY = re.compile(r"OutOfMemoryError: |CUDA error: out of memory|can't allocate memory: you tried|^MemoryError\b")


@dataclass(frozen=True)
class TrialSettings:
    """How each trial is measured. ``evidence``: with FLOPs, profiler and sync points, for the diagnosis."""

    steps: int = 30
    warmup_steps: int | None = None
    timeout_s: float | None = None
    evidence: bool = False
    seed_offset: int | None = 0
    grad_norms: bool = False
    copy: CopyOptions | None = None
    notices_files: bool = False
    prefix: tuple[str, ...] = ()
    """Put before the command: ``srun …`` sends it as a job of its own."""
    same_draws: bool = False
    """Dropout masks and the like as the script alone would draw them; compiled code is slower for it."""
    ranks: int = 1
    """More: each trial is split over so many processes."""
    mode: str = ""
    """How it is split: ``ddp``, … No part of the practices of a trial."""


def run_trial(
    command: Sequence[str], words: Sequence[str], folder: Path, settings: TrialSettings, sink: Sink, progress: Progress
) -> Trial:
    """Run it, or return what an earlier run of the same trial left in ``folder``.

    Raises ``KeyboardInterrupt`` where a Ctrl-C came while it ended, after it was saved.
    """
    if (known := _known(folder)) is not None and _is_the_same(known, words, settings):
        return known
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted trial left
    folder.mkdir(parents=True)
    split = (settings.mode,) if settings.mode else ()
    request = Request(
        command=marked(settings.prefix, command, folder),
        steps=settings.steps,
        warmup_steps=settings.warmup_steps,
        profile=settings.evidence,
        flops=settings.evidence,
        timeout_s=settings.timeout_s,
        folder=folder,
        practices=(*split, *words),
        launcher=over_ranks(settings.ranks) if split else (),
        entry=Entry.PRACTICES,
        environment=environment_of(words),
        seed_offset=settings.seed_offset,
        grad_norms=settings.grad_norms,
        copy=settings.copy,
        notices_files=settings.notices_files,
        same_draws=settings.same_draws,
        repeated=True,
    )
    began, began_at = time.monotonic(), time.time()
    measured = measure(request, sink, progress)
    seconds = time.monotonic() - began
    waited_s = min(seconds, queued_s(folder, began_at, time.time())) if settings.prefix else 0.0
    outcome, message = _outcome(measured, words, folder, settings.steps)
    trial = Trial(
        name=folder.name,
        command=safe_command([*settings.prefix, *command]),
        practices=tuple(words),
        ranks=settings.ranks if split else None,
        outcome=outcome,
        seconds=seconds - waited_s,
        queued_s=waited_s,
        message=safe_text(message),
        evidence=settings.evidence,
        seed_offset=settings.seed_offset,
        grad_norms=settings.grad_norms,
        timeout_s=settings.timeout_s,
        measurement=measured.measurement,
    )
    if outcome is not Outcome.INTERRUPTED:
        folder.mkdir(parents=True, exist_ok=True)  # scripts delete what they take for their own output
        trial.save(folder / RECORD)
        with contextlib.suppress(OSError):
            (folder / "measurement.json").unlink()  # the trial holds it
        if measured.outcome.interrupted:
            raise KeyboardInterrupt
    return trial


def does_not_train(own: Trial, hint: str | None = None) -> UserError:
    """Why the command as it is cannot be used."""
    said = last_line(own.message)
    if own.outcome is Outcome.NO_TRAINING:
        return UserError(said, hint=hint)
    text = f"the command does not train as it is ({own.outcome}): {said}"
    return UserError(text, hint=(terminal_hint() if own.outcome is Outcome.CRASH else None) or hint)


def _is_the_same(known: Trial, words: Sequence[str], settings: TrialSettings) -> bool:
    """Asked the same; and one that was ended for want of time had as much as it would have now."""
    ranks = settings.ranks if settings.mode else None
    asked = (tuple(words), settings.evidence, settings.seed_offset, settings.grad_norms, ranks)
    if (known.practices, known.evidence, known.seed_offset, known.grad_norms, known.ranks) != asked:
        return False
    had_less = known.timeout_s is not None and (settings.timeout_s is None or known.timeout_s < settings.timeout_s)
    return known.outcome is not Outcome.TIMEOUT or not had_less


def _known(folder: Path) -> Trial | None:
    with contextlib.suppress(RecordError):
        return Trial.load(folder / RECORD)
    return None


def _outcome(measured: Measured, words: Sequence[str], folder: Path, asked_steps: int) -> tuple[Outcome, str]:
    record = measured.measurement
    if record is not None and record.step_ms is not None and _counts(measured, asked_steps):
        if words and not record.practices:  # ours to mend, and never to be taken for a measurement of the practices
            return Outcome.CRASH, f"vivace could not apply them: {last_lines(folder / 'stderr.log', _LAST_LINES)}"
        return Outcome.OK, ""
    reason = (record.reason if record is not None else measured.message) or ""
    ending = record.ending if record is not None else measured.ending
    if measured.outcome.interrupted:
        return Outcome.INTERRUPTED, reason
    errors = last_lines(folder / "stderr.log", _LAST_LINES)
    told = _memory_error(folder / "stderr.log")
    if ending in (Ending.OTHER_VIVACE, Ending.CANNOT_MEASURE):
        return Outcome.CRASH, reason
    says_so = ending is Ending.OUT_OF_MEMORY or "out of memory" in errors.lower()
    if told or says_so or measured.outcome.exit_code == 137:
        return Outcome.OUT_OF_MEMORY, told or reason or errors
    if measured.outcome.timed_out:
        return Outcome.TIMEOUT, reason
    if record is not None and record.missing_ranks and measured.outcome.exit_code == 0:
        return Outcome.CRASH, reason
    if record is not None and ended_by_itself(record):
        return Outcome.CRASH, says_too_few(record)
    if record is None and measured.outcome.exit_code == 0:
        return Outcome.NO_TRAINING, reason
    return Outcome.CRASH, reason if ending is Ending.OWN_ERROR else errors or reason


def _counts(measured: Measured, asked_steps: int) -> bool:
    """Whole, or of a script that ended well after enough timed steps."""
    record = measured.measurement
    assert record is not None
    if record.status == "complete":
        return True
    return ended_by_itself(record) and measured.outcome.exit_code == 0 and has_enough(record, asked_steps)


def _memory_error(path: Path) -> str | None:
    """The line of a rank that ran out of memory: a launcher's own summary comes after it."""
    with contextlib.suppress(OSError):
        lines = path.read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if _NO_MEMORY.search(line)), None)
    return None
