"""Scripts that end by themselves before a trial is whole: what was timed counts, and too little comes with a remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vivace.errors import ExitCode, UserError
from vivace.practices.engine.loaders import waited_for
from vivace.protocol.ending import ENDED_BY_ITSELF, Ending
from vivace.records.measurement import Measurement
from vivace.records.trial import Trial

__all__ = ["ENOUGH_STEPS", "ended_by_itself", "has_enough", "refuse_too_short", "says_too_few", "shorter_than_asked"]

ENOUGH_STEPS = 10  # the smallest window that a trial of long steps asks for; with fewer, one slow step decides
_USUAL_WARMUP = 20  # steps, after which the warm-up no longer waits for times to agree
_AFTER_THE_WINDOW = 20  # gradient norms, profile, sync points: up to 18 steps
_LENGTH = re.compile(
    r"-{0,2}(?:(?:max|num|n|nb|total|train|training)[-_.]?)*(?:steps?|iters?|iterations?|epochs?|updates|batches)"
)


def ended_by_itself(record: Measurement) -> bool:
    """It ended well, only before the measurement was done."""
    return record.ending is Ending.ENDED_BY_ITSELF and not record.missing_ranks


def has_enough(record: Measurement, asked_steps: int) -> bool:
    """Whether what was timed after the warm-up is enough for a figure."""
    opened = record.before_window_s is not None
    return opened and record.step_ms is not None and record.steps >= min(asked_steps, ENOUGH_STEPS)


def says_too_few(record: Measurement) -> str:
    return f"{ENDED_BY_ITSELF.text} after {_seen(record)} steps, too few to measure"


def refuse_too_short(own: Trial, command: Sequence[str], asked_steps: int) -> None:
    """``own``: the command as it is. One that ends well, only too early, is no crash to the user."""
    record = own.measurement
    if record is None or not ended_by_itself(record) or has_enough(record, asked_steps):
        return
    needed = _needed(record, asked_steps)
    seen = f"{ENDED_BY_ITSELF.text} after {_seen(record)} steps"
    raise UserError(
        f"the command is too short: {seen}, and vivace needs about {needed}",
        hint=_remedy(record, command, needed) or "let it train for longer, or ask for fewer --steps",
        exit_code=ExitCode.NOT_ENOUGH,
    )


def shorter_than_asked(record: Measurement, command: Sequence[str], asked_steps: int) -> str | None:
    """For a script that ends within a trial but leaves enough: what its trials rest on, and what would be better."""
    if not ended_by_itself(record) or record.steps >= asked_steps:
        return None
    needed = _needed(record, asked_steps)
    remedy = _remedy(record, command, needed)
    return (
        f"the script ends by itself after {_seen(record)} steps: {record.steps} of them were timed, not "
        f"{asked_steps}; {needed} steps would be enough" + (f" ({remedy})" if remedy else "")
    )


def _seen(record: Measurement) -> int:
    return record.warmup_steps + record.steps


def _needed(record: Measurement, asked_steps: int) -> int:
    """Of steps in all: warm-up, window, and the look that follows."""
    loader = waited_for(record)
    queue = loader.num_workers * (loader.prefetch_factor or 0) if loader is not None else 0
    opened = record.before_window_s is not None
    warmup = record.warmup_steps if opened else max(_USUAL_WARMUP, queue)
    return warmup + max(asked_steps, ENOUGH_STEPS) + _AFTER_THE_WINDOW


def _remedy(record: Measurement, command: Sequence[str], needed: int) -> str:
    """The flag of the command that sets its length, with a value that would do; empty where none is seen."""
    flag = _length_flag(command)
    if flag is None or flag.value < 1:
        return ""
    value = math.ceil(flag.value * needed / max(1, _seen(record)))
    return f"{flag.name}{value} in place of {flag.name}{flag.value}"


@dataclass(frozen=True)
class _Flag:
    """``name``: all that stands before the value, as the command has it: "--steps ", "max_iters="."""

    name: str
    value: int


def _length_flag(command: Sequence[str]) -> _Flag | None:
    """``--steps 100``, ``--max_iters=100`` or ``trainer.max_steps=100``; the last one counts, as in argparse."""
    found = None
    for word, after in zip(command, (*command[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if not _LENGTH.fullmatch(name.rpartition(".")[2] if "." in name else name):
            continue
        if equals and value.isdecimal():
            found = _Flag(f"{name}=", int(value))
        elif not equals and name.startswith("-") and after.isdecimal():
            found = _Flag(f"{name} ", int(after))
    return found
