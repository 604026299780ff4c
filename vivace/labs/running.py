"""Runs a lab in a process of its own, and reads the tables that it wrote."""

from __future__ import annotations

import csv
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from vivace.errors import UserError
from vivace.hardware.gpu import read_gpus
from vivace.labs.bench import OUT, SMALL
from vivace.labs.catalogue import Lab
from vivace.labs.header import Need

__all__ = ["LabRun", "missing_machines", "run_lab"]

_MODULES = {
    Need.TORCH: "torch", Need.DATA: "PIL", Need.VISION: "torchvision", Need.TEXT: "transformers",
    Need.HPO: "optuna", Need.RAY: "ray", Need.JAX: "jax",
}  # fmt: skip


class LabRun(BaseModel):
    """What ``vivace lab run --json`` prints."""

    lab: str
    small: bool
    seconds: float
    folder: Path
    tables: dict[str, list[dict[str, str]]]
    """By name; cells as in the CSV file."""
    pictures: list[Path]
    compare: str


def missing_machines(lab: Lab) -> tuple[Need, ...]:
    """What the full form asks for and this machine lacks. The lab still runs what it can."""
    wanted = (*lab.header.needs, *lab.header.full_needs)
    return tuple(need for need in wanted if need not in _MODULES and not _is_here(need))


def _is_here(need: Need) -> bool:
    if need is Need.SLURM:
        return shutil.which("sbatch") is not None
    return len(read_gpus(None, []).gpus) >= (2 if need is Need.GPUS else 1)


def run_lab(lab: Lab, folder: Path, small: bool, quiet: bool = False) -> LabRun:
    """Its output goes to the terminal; with ``quiet`` to stderr, so that stdout stays free."""
    _check_packages(lab)
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, OUT: str(folder.resolve()), SMALL: "1" if small else "0", "MPLBACKEND": "agg"}
    began = time.monotonic()
    sys.stdout.flush()
    process = subprocess.Popen([sys.executable, str(lab.source)], env=variables, stdout=2 if quiet else None)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    if code:
        raise UserError(f"the lab {lab.name} ended with exit code {code}", hint="its own error is above")
    return LabRun(
        lab=lab.name, small=small, seconds=round(time.monotonic() - began, 1), folder=folder,
        tables={path.stem: _rows(path) for path in sorted(folder.glob("*.csv"))},
        pictures=sorted(folder.glob("*.png")), compare=lab.header.compare.strip(),
    )  # fmt: skip


def _check_packages(lab: Lab) -> None:
    for need in lab.header.needs:
        module = _MODULES.get(need)
        if module is not None and importlib.util.find_spec(module) is None:
            raise UserError(f"the lab {lab.name} needs {module}", hint=f"pip install 'vivace[{need}]'")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
