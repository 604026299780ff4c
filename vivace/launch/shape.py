"""From a number of GPUs to nodes, tasks and cores, and to the QoS. Pure; called when a script is rendered."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vivace.errors import UserError
from vivace.hardware.specs import QosSpec
from vivace.launch.target import Target
from vivace.launch.words import slurm_time

__all__ = ["START_S", "Pieces", "Shape", "choose_qos", "shape_of", "split"]

START_S = 180  # what a piece loses at its start: imports, checkpoint, warm-up; of a short piece a twentieth at most
SPARE_REQUEUES = 5  # for preemptions and node failures: Slurm counts those restarts too


@dataclass(frozen=True)
class Shape:
    """One task a group of ``gpus_per_task`` GPUs (one, as a rule), and that group's share of the node's cores."""

    nodes: int
    tasks_per_node: int
    gpus_per_node: int
    cpus_per_task: int | None

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True)
class Pieces:
    """A long job as pieces of ``seconds`` each, in one QoS."""

    seconds: int
    count: int
    qos: str | None

    @property
    def max_requeues(self) -> int:
        return self.count - 1 + SPARE_REQUEUES


def shape_of(target: Target, gpus: int, gpus_per_task: int = 1, cpus_per_task: int | None = None) -> Shape:
    """Whole nodes above one node; else a ``UserError`` that names the two nearest counts.

    >>> shape_of(Target(name="a100", gpus_per_node=8, cores_per_gpu=8), 16)
    Shape(nodes=2, tasks_per_node=8, gpus_per_node=8, cpus_per_task=8)
    """
    capacity = target.gpus_per_node
    if gpus < 1 or gpus_per_task < 1:
        raise UserError(f"{gpus} GPUs with {gpus_per_task} a task make no job", hint="--gpus must be 1 or more")
    if gpus > capacity and gpus % capacity:
        below, above = gpus // capacity * capacity, (gpus // capacity + 1) * capacity
        raise UserError(
            f"{gpus} GPUs do not fill nodes of {capacity} on {target.name}", hint=f"ask for --gpus {below} or {above}"
        )
    nodes = max(1, gpus // capacity)
    if target.nodes is not None and nodes > target.nodes:
        raise UserError(
            f"{gpus} GPUs are {nodes} nodes, and {target.name} has {target.nodes}",
            hint=f"at most --gpus {target.nodes * capacity}",
        )
    in_node = gpus // nodes
    if in_node % gpus_per_task:
        raise UserError(
            f"{in_node} GPUs a node cannot be dealt out to tasks of {gpus_per_task}",
            hint="--gpus-per-task must divide the GPUs of a node",
        )
    cpus = cpus_per_task or (target.cores_per_gpu * gpus_per_task if target.cores_per_gpu else None)
    return Shape(nodes, in_node // gpus_per_task, in_node, cpus)


def choose_qos(target: Target, seconds: int, gpus: int, jobs: int = 1, wanted: str | None = None) -> str | None:
    """The shortest QoS that takes the job; None when the target has no table of them."""
    if wanted is not None:
        known = {qos.name: qos for qos in target.qos}
        if wanted in known and (reason := _why_not(known[wanted], seconds, gpus, jobs)):
            raise UserError(f"the QoS {wanted} {reason}", hint="leave --qos out and vivace chooses one that fits")
        return wanted  # one that the table does not know is Slurm's to judge
    if not target.qos:
        return None
    fitting = [qos for qos in target.qos if not _why_not(qos, seconds, gpus, jobs)]
    if fitting:
        return min(fitting, key=_length_s).name
    reasons = "; ".join(f"{qos.name} {_why_not(qos, seconds, gpus, jobs)}" for qos in target.qos)
    raise UserError(
        f"no QoS of {target.name} takes {gpus} GPUs for {slurm_time(seconds)}: {reasons}",
        hint="lower --time or --gpus, or cut the job in pieces with --split (the script must save and resume)",
    )


def split(target: Target, seconds: int, gpus: int, lead_s: Callable[[int], int], jobs: int = 1) -> Pieces:
    """Pieces for a job that no QoS takes whole. Each gives up its start, and ``lead_s`` (of its length) at its end."""
    if not target.qos:
        return Pieces(seconds, 1, None)
    fitting = [qos for qos in target.qos if not _why_not(qos, 1, gpus, jobs)]
    if not fitting:
        choose_qos(target, 1, gpus, jobs)
    whole = [qos for qos in fitting if _length_s(qos) >= seconds]
    if whole:
        return Pieces(seconds, 1, min(whole, key=_length_s).name)
    longest = max(fitting, key=_length_s)
    length = int(_length_s(longest))
    useful = length - lead_s(length) - min(START_S, length // 20)
    if useful <= 0:
        raise UserError(f"{slurm_time(length)} leaves no time to train with a signal {lead_s(length)} s before the end")
    return Pieces(length, math.ceil(seconds / useful), longest.name)


def _length_s(qos: QosSpec) -> float:
    return math.inf if qos.max_hours is None else qos.max_hours * 3600


def _why_not(qos: QosSpec, seconds: int, gpus: int, jobs: int) -> str | None:
    if seconds > _length_s(qos):
        return f"ends at {qos.max_hours:g} h"
    limits = [qos.max_gpus_per_job, qos.max_gpus_per_user, qos.max_gpus_per_project]
    most = min((limit for limit in limits if limit is not None), default=None)
    if most is not None and gpus > most:
        return f"takes {most} GPUs a job"
    if qos.max_jobs_per_user is not None and jobs > qos.max_jobs_per_user:
        return f"takes {qos.max_jobs_per_user} jobs at a time"
    return None
