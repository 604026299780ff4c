"""A race: rounds of one run of every entry, in turn, until the answer is clear or the seeds are used up.

Every finished run is a folder with its record (``runs/SEED-ENTRY/run.json``), so an interrupted race goes on where it
stopped, and the tasks of a Slurm array can run a race together.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from vivace.hardware.machine import this_machine
from vivace.hardware.software import Software
from vivace.measure.command import Sink
from vivace.race.asked import AskedEntry, AskedRace
from vivace.race.one_run import Interrupted, run_once
from vivace.race.results import ESTIMATOR, results_of, warnings_of
from vivace.race.statistics.comparing import may_end
from vivace.race.statistics.looks import share_of_look
from vivace.race.statistics.sample import Estimate
from vivace.records.privacy import safe_command
from vivace.records.race import EntryResult, Race, RaceEntry, RaceRun

__all__ = ["RECORD", "order_of_round", "race", "race_of", "run_number"]

RECORD = "race.json"
_RUN = "run.json"

Say = Callable[[RaceRun], None]


def race(asked: AskedRace, folder: Path, sink: Sink, say: Say) -> Race:
    """Run what is missing of the race in ``folder``; ``say`` is told of every run as it ends."""
    interrupted = False
    try:
        for seed in range(asked.seeds):
            for entry in order_of_round(asked, seed):
                if _read_run(asked, folder, entry, seed) is None:
                    say(_run(asked, folder, entry, seed, sink))
                    race_of(asked, folder).save(folder / RECORD)
            if asked.stop_early and _is_decided(asked, folder, seed + 1):
                break
    except Interrupted:
        interrupted = True
    record = race_of(asked, folder, interrupted).model_copy(update={"machine": this_machine(Software())})
    record.save(folder / RECORD)
    return record


def run_number(asked: AskedRace, folder: Path, number: int, sink: Sink) -> RaceRun:
    """One run of all, by its number: for the task of an array. One that is there already is not run again."""
    seed, place = divmod(number, len(asked.entries))
    entry = asked.entries[place]
    return _read_run(asked, folder, entry, seed) or _run(asked, folder, entry, seed, sink)


def order_of_round(asked: AskedRace, seed: int) -> list[AskedEntry]:
    """Another entry begins each round: what a machine does to the first run, each has its turn at."""
    first = seed % len(asked.entries)
    return [*asked.entries[first:], *asked.entries[:first]]


def race_of(asked: AskedRace, folder: Path, interrupted: bool = False) -> Race:
    """The record of all runs that are in ``folder``."""
    found = [_read_run(asked, folder, entry, seed) for seed in range(asked.seeds) for entry in asked.entries]
    runs = [run for run in found if run is not None]
    of_a_round = Counter(run.seed for run in runs)
    whole = sum(count == len(asked.entries) for count in of_a_round.values())
    results = results_of([entry.name for entry in asked.entries], runs, asked.seeds, asked.duration)
    decided = asked.stop_early and _clear(asked, whole, results)
    return Race(
        target=str(asked.target), clock=asked.clock, limit=asked.limit, confirm=asked.confirm, seeds=asked.seeds,
        entries=tuple(map(_entry, asked.entries)),
        runs=tuple(runs), results=tuple(results), estimator=ESTIMATOR, interval_share=share_of_look(asked.seeds),
        complete=whole == asked.seeds or decided, interrupted=interrupted, ended_early=decided and whole < asked.seeds,
        notes=tuple(warnings_of(results, runs, asked.clock)), folder=str(folder),
    )  # fmt: skip


def _entry(asked: AskedEntry) -> RaceEntry:
    return RaceEntry(name=asked.name, command=safe_command(asked.command), practices=asked.practices)


def _is_decided(asked: AskedRace, folder: Path, rounds: int) -> bool:
    return _clear(asked, rounds, race_of(asked, folder).results)


def _clear(asked: AskedRace, rounds: int, results: list[EntryResult] | tuple[EntryResult, ...]) -> bool:
    ratios = [
        Estimate(r.speedup.value, r.speedup.low, r.speedup.high) if r.speedup is not None else Estimate(1.0, 0.0, 2.0)
        for r in results[1:]
    ]
    return len(ratios) == len(asked.entries) - 1 and may_end(rounds, asked.seeds, ratios)


def _run(asked: AskedRace, folder: Path, entry: AskedEntry, seed: int, sink: Sink) -> RaceRun:
    place = _place(asked, folder, entry, seed)
    shutil.rmtree(place, ignore_errors=True)  # of a run that was interrupted
    place.mkdir(parents=True)
    run = run_once(asked, entry, seed, place, sink)
    run.save(place / _RUN)
    return run


def _read_run(asked: AskedRace, folder: Path, entry: AskedEntry, seed: int) -> RaceRun | None:
    path = _place(asked, folder, entry, seed) / _RUN
    return RaceRun.load(path) if path.is_file() else None


def _place(asked: AskedRace, folder: Path, entry: AskedEntry, seed: int) -> Path:
    name = re.sub(r"[^\w.-]+", "-", entry.name).strip("-.")[:60]
    return folder / "runs" / f"{seed}-{asked.entries.index(entry)}-{name}"
