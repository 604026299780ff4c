"""The interval beside each estimate: factors of ``data/intervals.toml``, which say how far plans were off on
files that they were not made with.

Reads that one file. Called by ``answer.py``, ``whole_run.py`` and ``validate.py``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from vivace.plan.run.energy import assumption
from vivace.records.plan import PlanInterval

__all__ = ["Kind", "Spread", "interval", "printed_spread"]

FILE = Path(__file__).parents[1] / "data" / "intervals.toml"
Kind = Literal["time", "memory", "run"]


@dataclass(frozen=True)
class Spread:
    """The interval, as factors of the estimate."""

    low: float
    high: float


@lru_cache(maxsize=3)
def printed_spread(kind: Kind) -> Spread:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    if kind == "run":
        step, share, run = printed_spread("time"), assumption("goodput", "share"), tables["run"]
        return Spread(step.low * share / run["goodput_high"], step.high * share / run["goodput_low"])
    return Spread(float(tables[kind]["low"]), float(tables[kind]["high"]))


def interval(estimate: float, kind: Kind) -> PlanInterval:
    """The estimate with what measured figures may be: a step, the memory of a GPU, or a whole run."""
    spread = printed_spread(kind)
    return PlanInterval(estimate=estimate, low=estimate * spread.low, high=estimate * spread.high)
