"""Which practices are worth a trial? Asked of one process, in which they are switched on and off between steps.

A trial in a fresh process takes as long as the script's start; a switch takes a millisecond, and neighbouring steps
have the same data and clocks. So what does not pay is sorted out here, and what pays goes into the first trial
together. The trials and the proof stay in fresh processes: nothing is kept for what was seen here alone.

Ratios of CUDA jobs have not been compared with those of fresh processes yet. There nothing is left out either: what
does not pay here is tried last, within the budget. So an error costs time, and never a gain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from vivace.files import write_text_atomically
from vivace.measure.command import run_command
from vivace.measure.copied_folder import copied_folder
from vivace.measure.standard_input import standard_input
from vivace.practices.engine.pricing import on_gpu
from vivace.practices.engine.registry import environment_of, get_practice, split_word
from vivace.protocol.request import Entry, ProcessRequest
from vivace.protocol.switchback import SEEN, ArmSeen, ArmState, SeenSwitchback, SwitchbackTest
from vivace.records.measurement import Measurement
from vivace.records.trial import Trial
from vivace.tune.bench import Bench, Interrupted
from vivace.tune.references import measured

__all__ = ["Sorted", "sort_out"]

_FOLDER = "switchback"
_RECORD = "seen.json"
_STEPS_PER_WORD = 60  # 16 pairs of windows, the steps between them, and warming up
_WORTH_IT = 0.7  # of the time that one trial for each word would take
_SHARE_OF_BUDGET = 0.3
_SHORTEST_S = 5.0
_LONGEST_COMPILE_S = 300.0
_STARTS = 2  # one more, if a practice ends the process


@dataclass(frozen=True)
class Sorted:
    """What one process told about each word; words it could not tell anything about are in neither."""

    pay: tuple[str, ...] = ()
    do_not_pay: tuple[ArmSeen, ...] = ()
    try_last: tuple[str, ...] = ()
    """On a GPU, what does not pay here."""


def sort_out(bench: Bench, baseline: Trial, again: Trial, words: Sequence[str]) -> Sorted:
    """Nothing, where it would not save time or was not tried enough: over ranks, and in a queue."""
    record = measured(again)
    able = [word for word in words if _is_switchable(word)]
    step_s = (record.step_ms.mean if record.step_ms is not None else 0.0) / 1e3
    needed_s = len(able) * _STEPS_PER_WORD * step_s
    seconds = min(max(_SHORTEST_S, needed_s), _SHARE_OF_BUDGET * bench.left_s)
    if not _is_possible(bench, record) or len(able) < 2:
        return Sorted()
    if needed_s > min(_WORTH_IT * len(able) * again.seconds, _SHARE_OF_BUDGET * bench.left_s):
        return Sorted()
    seen = _known(bench.folder) or _run(bench, again, tuple(able), seconds)
    _say(bench, seen)
    pay = tuple(arm.word for arm in seen.arms if arm.state is ArmState.PAYS)
    do_not = tuple(arm for arm in seen.arms if arm.state is ArmState.NO_GAIN)
    return Sorted(pay, try_last=tuple(arm.word for arm in do_not)) if on_gpu(record) else Sorted(pay, do_not)


def _is_switchable(word: str) -> bool:
    name, argument = split_word(word)
    make = get_practice(name).change
    return make is not None and make(argument).switchable


def _is_possible(bench: Bench, record: Measurement) -> bool:
    return not bench.prefix and not bench.settings.mode and len(record.ranks) <= 1


def _run(bench: Bench, again: Trial, words: tuple[str, ...], seconds: float) -> SeenSwitchback:
    """In a folder of its own. What ends the process is left out, and the rest goes on in another one."""
    arms: list[ArmSeen] = []
    kept: tuple[str, ...] = ()
    seen = SeenSwitchback()
    for start in range(_STARTS):
        folder = bench.folder / _FOLDER / str(start + 1)
        folder.mkdir(parents=True, exist_ok=True)
        seen = _one_process(bench, again, SwitchbackTest(words, seconds, kept), folder)
        arms += [arm for arm in seen.arms if arm.state is not ArmState.TRYING]
        known = {arm.word for arm in seen.arms}
        words = tuple(word for word in words if word not in known)
        kept = seen.kept
        if seen.complete or not words or not seen.arms:
            break
    whole = SeenSwitchback(tuple(arms), kept, seen.total, seen.complete, seen.cycles, seen.seconds)
    write_text_atomically(bench.folder / _FOLDER / _RECORD, whole.to_text())
    return whole


def _one_process(bench: Bench, again: Trial, test: SwitchbackTest, folder: Path) -> SeenSwitchback:
    request = ProcessRequest(
        str(folder.resolve()), entry=Entry.SWITCHBACK, measure=False, seed_offset=0, switchback=test
    )
    limit_s = 3 * again.seconds + test.seconds + _LONGEST_COMPILE_S
    environment = {**environment_of(()), "PYTHONUNBUFFERED": "1"}
    copy = bench.settings.copy
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(copied_folder(Path.cwd(), folder, copy)) if copy is not None else None
        outcome = run_command(
            bench.command, request, bench.sink, bench.progress, limit_s, environment, cwd=place, stdin=standard_input()
        )
    bench.used_s += outcome.seconds
    if outcome.interrupted:
        raise Interrupted(bench.folder)
    for path in folder.glob(SEEN):
        with contextlib.suppress(OSError, ValueError):
            return SeenSwitchback.from_text(path.read_text())
    return SeenSwitchback()


def _known(folder: Path) -> SeenSwitchback | None:
    """Of an interrupted tune that goes on."""
    with contextlib.suppress(OSError, ValueError):
        return SeenSwitchback.from_text((folder / _FOLDER / _RECORD).read_text())
    return None


def _say(bench: Bench, seen: SeenSwitchback) -> None:
    told = [f"{arm.word} {arm.ratio:.2f}×" for arm in seen.arms if arm.ratio is not None]
    if told:
        bench.say(f"  [dim]·[/] {'switched inside one process':32} [dim]{escape(', '.join(told))}[/]")
