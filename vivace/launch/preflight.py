"""Asks Slurm, before a job is sent, whether it would take it and whether it could ever start.

``sbatch --test-only`` finds what is rejected at once. What is accepted and then waits for ever (more time or more nodes
than the partition has, more than the QoS allows) is found in the limits. Starts Slurm's programs, changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from vivace.errors import UserError
from vivace.launch.script import Job
from vivace.launch.slurm import ask, refusal
from vivace.launch.words import seconds_of, slurm_time

__all__ = ["Preflight", "preflight"]


@dataclass(frozen=True)
class Preflight:
    """What was learned. ``notes`` says what could not be checked."""

    expected_start: str | None
    partition: str | None
    notes: tuple[str, ...] = ()


def preflight(job: Job, script: str, environment: Mapping[str, str] = os.environ) -> Preflight:
    """A ``UserError`` when Slurm would refuse the job or never start it."""
    wanted = job.request.partition or job.target.partition
    # The limits first, where the partition is known: Slurm's own refusal does not say which number is too large.
    notes = _check_partition(job, wanted) if wanted else []
    notes += _check_qos(job)
    answer = ask("sbatch", "--test-only", script, environment=environment)
    if answer.code != 0:
        error = refusal("sbatch", answer)
        raise UserError(f"Slurm would not take this job: {error.said}", error.hint)
    start, partition = parse_test_only(answer.err)
    if wanted is None and partition is None:
        notes.append("the limits of the partition were not checked: sbatch --test-only did not name it")
    elif wanted is None and partition is not None:
        notes += _check_partition(job, partition)
    return Preflight(start, partition, tuple(notes))


def parse_test_only(text: str) -> tuple[str | None, str | None]:
    """The expected start and the partition in what ``sbatch --test-only`` says."""
    start = re.search(r"to start at (\S+)", text)
    partition = re.search(r"in partition (\S+)", text)
    return (start[1] if start else None), (partition[1] if partition else None)


def _check_partition(job: Job, partition: str) -> list[str]:
    answer = ask("scontrol", "--oneliner", "show", "partition", partition)
    if answer.code != 0:
        return [f"the limits of the partition {partition} were not checked: {answer.said}"]
    facts = parse_pairs(answer.out)
    most_time, most_nodes = _seconds(facts.get("MaxTime")), _number(facts.get("MaxNodes"))
    if most_time is not None and job.seconds > most_time:
        raise UserError(
            f"the job would never start: it asks for {slurm_time(job.seconds)}, "
            f"and the partition {partition} allows {slurm_time(most_time)}",
            hint=f"--time {slurm_time(most_time)} or less",
        )
    total = _number(facts.get("TotalNodes"))
    limit = min((count for count in (most_nodes, total) if count is not None), default=None)
    if limit is not None and job.shape.nodes > limit:
        raise UserError(
            f"the job would never start: it asks for {job.shape.nodes} nodes, "
            f"and the partition {partition} gives {limit}",
            hint=f"--gpus {limit * job.shape.gpus_per_node} or fewer",
        )
    state = facts.get("State", "UP")
    return [] if state == "UP" else [f"the partition {partition} is {state}: jobs wait until it is up"]


def _check_qos(job: Job) -> list[str]:
    if job.qos is None:
        return []
    fields = "Name,MaxWall,MaxTRES,MaxTRESPU"
    answer = ask("sacctmgr", "--noheader", "--parsable2", "show", "qos", job.qos, f"format={fields}")
    if answer.code != 0:
        return [f"the limits of the QoS {job.qos} were not checked: {answer.said or 'sacctmgr gave no answer'}"]
    for line in answer.out.splitlines():
        name, wall, per_job, per_user = (line.split("|") + [""] * 4)[:4]
        if name == job.qos:
            _check_qos_limits(job, _seconds(wall), [count for t in (per_job, per_user) if (count := _gpus(t))])
    return []


def _check_qos_limits(job: Job, wall_s: int | None, gpus: list[int]) -> None:
    if wall_s is not None and job.seconds > wall_s:
        raise UserError(
            f"the job would never start: it asks for {slurm_time(job.seconds)}, "
            f"and the QoS {job.qos} allows {slurm_time(wall_s)}",
            hint="lower --time, or choose a longer QoS with --qos",
        )
    if gpus and job.shape.gpus > min(gpus):
        raise UserError(
            f"the job would never start: it asks for {job.shape.gpus} GPUs, and the QoS {job.qos} allows {min(gpus)}",
            hint="lower --gpus, or choose another QoS with --qos",
        )


def parse_pairs(text: str) -> dict[str, str]:
    """``Key=value`` words of ``scontrol --oneliner``, as far as a value has no space."""
    return dict(re.findall(r"(?:^|\s)([A-Za-z/_:]+)=(\S*)", text))


def _seconds(text: str | None) -> int | None:
    if not text or text.upper() in ("UNLIMITED", "NONE", "INFINITE"):
        return None
    try:
        return seconds_of(text)
    except UserError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _gpus(tres: str) -> int | None:
    match = re.search(r"gres/gpu=(\d+)", tres)
    return int(match[1]) if match else None
