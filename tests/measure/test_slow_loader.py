"""A loader that lives on its queue for a while: the timed steps are the loader's, or a note says they are not.

Sleeping takes no core, so a loaded machine makes these steps longer, never shorter: only lower bounds on times.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from vivace.measure.inside.facts.worker_clock import WorkerClock
from vivace.measure.merge import _why_not_lasting
from vivace.protocol.payload import Payload, SeenSupply

STEPS = 20
BATCH_MS = 250 / 2  # of two workers; six steps, so that a busy machine does not make the loader keep up


@pytest.mark.parametrize("arguments", [(), ("--validate",)])
def test_the_window_opens_when_the_queue_is_empty(measure: Callable, arguments: tuple[str, ...]):
    record = measure("slow_loader.py", *arguments, options=("--steps", str(STEPS))).record
    assert record["warmup_steps"] > 30
    assert record["ready_at_start"] <= 3
    assert record["ready_at_end"] <= 3
    assert sum(record["series_ms"]["step"]) > 0.75 * STEPS * BATCH_MS
    assert record["notes"] == []


def test_a_set_warm_up_is_kept_and_the_lasting_speed_is_said(measure: Callable):
    record = measure("slow_loader.py", options=("--steps", str(STEPS), "--warmup", "4")).record
    lent = record["ready_at_start"] - record["ready_at_end"]
    assert 3 <= lent <= STEPS
    (note,) = (note for note in record["notes"] if "falls behind" in note)
    assert int(re.search(r"about (\d+) % slower", note)[1]) == pytest.approx(100 * lent / STEPS)
    assert sum(record["series_ms"]["step"]) / (1 - lent / STEPS) > 0.75 * STEPS * BATCH_MS


def test_a_loader_that_keeps_up_is_not_waited_for(measure: Callable):
    slow_steps = ("--load-ms", "1", "--step-ms", "80")  # workers that seldom get a core keep up, too
    record = measure("slow_loader.py", *slow_steps, options=("--steps", str(STEPS))).record
    assert record["warmup_steps"] < 60
    assert record["ready_at_start"] > 20
    assert record["notes"] == []


@pytest.mark.parametrize("arguments", [(), ("--keep",)])
def test_a_script_that_ends_by_itself_still_tells_that_its_workers_wait(measure: Callable, arguments: tuple[str, ...]):
    """Else a tune of a short script would never try more workers than cores."""
    short = ("--batches", "60", "--load-ms", "100", "--step-ms", "1")
    record = measure("slow_loader.py", *short, *arguments, options=("--steps", "1000")).record
    assert record["status"] == "partial"
    assert record["workers_busy"] < 0.5


def test_workers_that_nobody_asks_for_batches_tell_nothing():
    clock = WorkerClock()
    clock.watch([os.getpid()])
    assert clock.busy_share([os.getpid()]) is not None
    assert clock.busy_share([os.getpid()], idle_s=3600.0) is None


@pytest.mark.parametrize(
    ("start", "end", "used", "cut_short", "says"),
    [
        (24, 11, 50, False, "24 batches were ready when the window opened, 11 at its end; a long run is about 26 %"),
        (24, 11, 50, True, "about 26 % slower"),
        (24, 19, 50, False, None),  # a tenth, no more
        (24, 22, 6, False, None),  # two batches are chance
        (24, 11, None, False, None),  # an epoch ended in the window
        (24, 24, 50, True, "the lasting speed may be lower"),
        (None, None, None, False, None),
    ],
)  # fmt: skip
def test_what_the_note_says(start: int | None, end: int | None, used: int | None, cut_short: bool, says: str | None):
    supply = SeenSupply(ready_at_start=start, ready_at_end=end, used=used, warmup_cut_short=cut_short)
    notes = _why_not_lasting(Payload(supply=supply))
    assert [says in note for note in notes] == ([] if says is None else [True])
