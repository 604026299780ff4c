"""What a ``Plan`` says about the job that carries it out: where, on how many GPUs, for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vivace.records.plan import Plan

__all__ = ["Planned", "planned"]

_S_PER_DAY = 86_400


@dataclass(frozen=True)
class Planned:
    """``seconds`` is None when the plan asked for no whole run (no tokens, no epochs)."""

    cluster: str
    gpus: int
    seconds: int | None


def planned(plan: Plan) -> Planned:
    """The upper end of the planned time: a job that ends early costs nothing, one that is cut off costs a restart."""
    seconds = math.ceil(plan.run.days.high * _S_PER_DAY) if plan.run is not None else None
    return Planned(plan.cluster, plan.gpus, seconds)
