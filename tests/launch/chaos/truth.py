"""Is what ``vivace status`` and ``vivace queue`` say true? Beside it: Slurm's own words, and the job's processes."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from launch.chaos.processes import Role, processes
from launch.chaos.site import Site
from launch.chaos.training import Training

__all__ = ["untrue", "untrue_in_silence"]

# Slurm's words, and what a person is to read for them. Written down here once more, on purpose.
READS = {
    "PENDING": "queued",
    "RUNNING": "running",
    "COMPLETING": "running",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "CANCELLED": "cancelled",
    "NODE_FAIL": "node-failure",
    "PREEMPTED": "cancelled",
}
_PAUSED = ("SUSPENDED", "STOPPED")
_ACTIVE = ("PENDING", "RUNNING", "COMPLETING", *_PAUSED)
_TRIES = 3


@dataclass(frozen=True)
class _Moment:
    state: str
    start: str
    training: bool
    """Some rank of it lives."""


def untrue(site: Site, training: Training, dice: random.Random) -> str | None:
    """What was not true, in words; None when all was, or when things changed too fast to tell.

    One of the two is asked: a process of vivace's costs as much as many steps of the training.
    """
    command, compare = dice.choice([("status", _status), ("queue", _queue)])
    for _ in range(_TRIES):
        before = _look(site, training)
        said = training.bench.vivace(command, training.job, "--json")
        if before == _look(site, training):
            if not before.state or "does not answer" in said.stderr:
                return None  # another fault has the controller
            return compare(before, json.loads(said.stdout)) if said.returncode == 0 else said.stderr
    return None


def untrue_in_silence(training: Training) -> str | None:
    """While Slurm's controller does not answer; one question only, for each takes as long as Slurm's patience."""
    listed = training.bench.vivace("queue", training.job, "--json")
    if listed.returncode == 2 and "does not answer" in listed.stderr:
        return None
    return f"Slurm is silent, and vivace queue says: {listed.stdout or listed.stderr}"


def _look(site: Site, training: Training) -> _Moment:
    facts = site.facts(training.job)
    ranks = processes(site.cluster, training.job)[Role.RANK]
    return _Moment(facts.get("JobState", ""), facts.get("StartTime", ""), bool(ranks))


def _status(moment: _Moment, said: dict[str, Any]) -> str | None:
    if said["state"] != READS.get(moment.state):
        return f"Slurm says {moment.state}, and vivace status {said['state']}"
    if moment.training and moment.state == "COMPLETED":
        return "its ranks live, and vivace status says completed"
    if moment.state in _PAUSED and said["because"] == "it runs":
        return f"Slurm says {moment.state}, and vivace status that it runs"
    return None


def _queue(moment: _Moment, said: list[dict[str, Any]]) -> str | None:
    if bool(said) != (moment.state in _ACTIVE):
        return f"Slurm says {moment.state}, and vivace queue lists {[row['state'] for row in said]}"
    return None
