"""A study whose workers are killed at random moments, and the laws that must hold all the same.

Used by ``test_chaos.py`` in a small form and by ``benchmarks/hpo_chaos.py`` in a large one.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from vivace.hpo.asked import Asked, PrunerName, SamplerName, write_asked
from vivace.hpo.ledger import Ledger, Part
from vivace.hpo.outcome import WORKER, counts
from vivace.hpo.space import Real
from vivace.hpo.summary import summarize
from vivace.hpo.team import Team
from vivace.records.hpo import Hpo

COUNTED = Path(__file__).parent / "scripts" / "counted.py"


@dataclass(frozen=True)
class Chaos:
    record: Hpo
    kills: int
    begun: dict[str, list[tuple[float, float]]]
    """By value: (begin, end) of each run; the end is infinite where it was killed."""
    seconds: float


def run_chaos(
    folder: Path, trials: int, workers: int, kills: int, command_s: float, seed: int, storage: str | None = None
) -> Chaos:
    """``kills``: so many workers are killed, one at a time, at random moments of their trials."""
    notes = folder / "notes.txt"
    asked = Asked(
        name="chaos",
        command=(sys.executable, "-IS", str(COUNTED), str(notes), "{x}", str(command_s)),
        cwd=str(folder), goal="min val_loss", reals=(Real("x", -5.0, 5.0),), order=("x",), trials=trials,
        workers=workers, sampler=SamplerName.RANDOM, pruner=PrunerName.NONE, confirm_seeds=0, seed=seed,
        storage=storage,
    )  # fmt: skip
    write_asked(folder, asked)
    ledger = Ledger(folder, asked)
    ledger.begin()
    random_ = random.Random(seed)
    done, began = 0, time.monotonic()
    team = Team(folder, asked, [], os.cpu_count() or 1)
    with team.at_work():
        while team.is_at_work:
            busy = _busy(ledger, team)
            if done < kills * min(1.0, (_ended(ledger) + 1) / trials) and busy:  # spread over the whole study
                time.sleep(random_.uniform(0, 2 * command_s))
                os.kill(random_.choice(busy), signal.SIGKILL)
                done += 1
            time.sleep(0.05)
            team.look()
    return Chaos(summarize(ledger), done, _runs(notes), time.monotonic() - began)


def _busy(ledger: Ledger, team: Team) -> list[int]:
    """Workers that have a trial; by the time that one is killed, it may have closed it or asked for the next."""
    workers = ledger.leases.workers()
    names = [trial.user_attrs.get(WORKER) for trial in ledger.trials(Part.SEARCH) if trial.state.name == "RUNNING"]
    return [workers[name].pid for name in names if name in workers and workers[name].pid in team.pids]


def _ended(ledger: Ledger) -> int:
    return sum(trial.state.is_finished() for trial in ledger.trials(Part.SEARCH))


def check_laws(chaos: Chaos, folder: Path, trials: int) -> None:
    """None lost, none counted twice, none run by two workers at once."""
    record = chaos.record
    assert record.complete
    ended = [one for one in record.trials if one.state in ("complete", "workers killed")]
    assert len(ended) == len(record.trials) == trials
    values = [one.values["x"] for one in record.trials]
    assert len(set(values)) == trials
    for one in record.trials:
        runs = sorted(chaos.begun[one.values["x"]])
        assert 1 <= len(runs) <= one.attempts, one
        assert all(early[1] <= late[0] or early[1] == float("inf") for early, late in itertools.pairwise(runs))
        if one.state == "complete":
            assert one.metric == float(one.values["x"]) ** 2
            assert any(end < float("inf") for _begin, end in runs), "counted, and never run to its end"
    assert set(chaos.begun) <= set(values), "values were run that no trial has"
    again = Ledger(folder, _asked_again(folder))
    assert sum(counts(trial) for trial in again.trials(Part.SEARCH)) == trials  # a reader who comes later agrees


def _asked_again(folder: Path) -> Asked:
    from vivace.hpo.asked import read_asked

    return read_asked(folder)


def _runs(notes: Path) -> dict[str, list[tuple[float, float]]]:
    begins: dict[tuple[str, str], float] = {}
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in notes.read_text().splitlines():
        what, name, at, pid = line.split()
        if what == "begin":
            begins[name, pid] = float(at)
        else:
            runs[name].append((begins.pop((name, pid)), float(at)))
    for (name, _pid), begin in begins.items():
        runs[name].append((begin, float("inf")))
    return runs
