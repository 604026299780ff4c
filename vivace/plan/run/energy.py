"""Power, energy and carbon of a job, with every assumption in ``data/energy.toml`` and printed with the
result.

Reads that file only. Called by ``whole_run.py`` and the search.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.hardware.schema import did_you_mean
from vivace.plan.facts.limits import at_least
from vivace.plan.machines.machine import Machine
from vivace.plan.time.step import StepTime

__all__ = ["assumption", "co2_t", "grid_g_per_kwh", "job_power_w"]

FILE = Path(__file__).parents[1] / "data" / "energy.toml"


@lru_cache(maxsize=1)
def _file() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def assumption(section: str, key: str) -> float:
    return float(_file()[section][key])


def busy_share(step: StepTime) -> float:
    """Share of the step in which the matrix units or the memory of the GPU work."""
    return min(1.0, (step.compute + step.recompute + step.optimizer) / step.total)


def job_power_w(machine: Machine, gpus: int, busy: float) -> float:
    """Average power of all GPUs and their hosts, before the building (PUE)."""
    gpu = machine.gpu
    each = gpu.idle_w + busy * (assumption("power", "busy_share_of_tdp") * gpu.tdp_w - gpu.idle_w)
    nodes = max(1.0, gpus / machine.gpus_per_node)
    host = nodes * assumption("power", "host_gpus_per_node") * gpu.tdp_w
    if gpus < machine.gpus_per_node:
        host *= gpus / machine.gpus_per_node
    return gpus * each + host


def grid_g_per_kwh(grid: str) -> float:
    """Grams of CO2 per kWh of a country's grid, or a number as it is."""
    try:
        grams = float(grid)
    except ValueError:
        return _of_a_country(grid)
    at_least("--grid", grams, 0)
    return grams


def _of_a_country(grid: str) -> float:
    table = _file()["grid"]
    if grid.lower() not in table:
        near = did_you_mean(grid.lower(), table) or f"one of {', '.join(table)}, or a number of g/kWh"
        raise UserError(f"no grid is called {grid!r}", hint=near)
    return float(table[grid.lower()])


def co2_t(energy_mwh: float, grams_per_kwh: float) -> float:
    """Tonnes: MWh x g/kWh / 1000."""
    return energy_mwh * grams_per_kwh / 1000.0
