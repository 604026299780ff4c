"""From one step to the whole training: days, GPU-hours, energy, cost, carbon, and jobs that fit a QoS.

Pure arithmetic on a step time and the assumptions of ``energy.py``. Called by ``answer.py``, ``budget.py``
and the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from vivace.errors import UserError
from vivace.hardware.schema import did_you_mean
from vivace.hardware.specs import ClusterSpec, QosSpec
from vivace.plan.machines.machine import Machine
from vivace.plan.run.energy import assumption, busy_share, co2_t, grid_g_per_kwh, job_power_w
from vivace.plan.run.intervals import interval
from vivace.plan.time.step import StepTime
from vivace.records.plan import PlanRun

__all__ = ["RunQuestion", "choose_qos", "recipe_minutes", "whole_run"]


@dataclass(frozen=True)
class RunQuestion:
    """How much training, and under which prices."""

    samples: float
    tokens: float | None = None
    price_per_gpu_hour: float | None = None
    currency: str = "EUR"
    grid: str = "fr"
    pue: float | None = None
    qos: str | None = None


def recipe_minutes(epochs: float, samples: float, samples_per_s: float) -> float:
    """Minutes of a recipe: epochs x samples / throughput."""
    return epochs * samples / samples_per_s / 60.0


def choose_qos(cluster: ClusterSpec | None, name: str | None, gpus: int) -> QosSpec | None:
    """The named QoS, else the default one that admits so many GPUs, else None."""
    if cluster is None:
        return None
    known = cluster.qos_specs
    if name is not None:
        for qos in known:
            if qos.name == name:
                return qos
        near = did_you_mean(name, [q.name for q in known]) or f"known: {', '.join(q.name for q in known) or 'none'}"
        raise UserError(f"{cluster.name} has no QoS {name!r}", hint=near)
    fits = [q for q in known if q.max_gpus_per_job is None or q.max_gpus_per_job >= gpus]
    return next((q for q in fits if q.default), fits[0] if fits else None)


def whole_run(
    step: StepTime,
    global_batch: int,
    gpus: int,
    machine: Machine,
    cluster: ClusterSpec | None,
    question: RunQuestion,
) -> PlanRun:
    steps = ceil(question.samples / global_batch)
    hours = steps * step.total / 3600.0 / assumption("goodput", "share")
    gpu_hours = hours * gpus
    pue = assumption("power", "pue") if question.pue is None else question.pue
    power_w = job_power_w(machine, gpus, busy_share(step))
    energy = power_w * hours / 1e6 * pue
    qos = choose_qos(cluster, question.qos, gpus)
    if qos and question.qos and qos.max_gpus_per_job and gpus > qos.max_gpus_per_job:
        raise UserError(
            f"QoS {qos.name} allows {qos.max_gpus_per_job} GPUs per job, not {gpus}",
            hint=f"use --gpus {qos.max_gpus_per_job}",
        )
    limit = qos.max_hours if qos else None
    price = question.price_per_gpu_hour
    return PlanRun(
        tokens=question.tokens,
        samples=question.samples,
        steps=steps,
        days=interval(hours / 24.0, "run"),
        gpu_hours=interval(gpu_hours, "run"),
        energy_mwh=interval(energy, "run"),
        co2_t=co2_t(energy, grid_g_per_kwh(question.grid)),
        cost=None if price is None else price * gpu_hours,
        currency=question.currency,
        qos=qos.name if qos else None,
        pieces=None if limit is None else max(1, ceil(hours / limit)),
        hours_per_piece=None if limit is None else min(hours, limit),
    )
