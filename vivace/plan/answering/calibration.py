"""Calibrate a plan with a measurement from the user's own GPU.

Reads the JSON of a ``Measurement`` (or any JSON with ``step_ms.mean`` or ``.median``): the ratio of measured to
predicted compute time scales the compute term, and the loader's time is taken as measured. Called by the
CLI.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.plan.images.image_job import VisionJob, vision_step_time
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.time.step import step_time
from vivace.records.layout import Layout

__all__ = ["Measured", "calibrate_transformer", "calibrate_vision", "read_measurement"]

LOADER_WORDS = ("load", "data", "input", "fetch")


@dataclass(frozen=True)
class Measured:
    """What the planner uses of a measurement."""

    step_ms: float
    batch_size: int
    loader_ms: float
    reserved_gib: float | None
    source: str


def read_measurement(path: Path | str) -> Measured:
    try:
        data = json.loads(read_user_text(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a measurement: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} is not a measurement: it holds no object")
    batch = _number(data.get("batch_size"))
    step = _number(_inside(data, "step_ms")) or _from_rate(data, batch)
    if step is None:
        raise UserError(f"{path} has neither step_ms.mean nor samples_per_s", hint="make it with: vivace measure -- …")
    if batch is None:
        raise UserError(f"{path} has no batch_size", hint="add the samples per step and GPU as batch_size")
    reserved = _number(_inside(data, "memory", "device", "reserved_peak_gib"))
    return Measured(step, int(batch), _loader_ms(data.get("phases_ms")), reserved, str(path))


def _inside(data: dict[str, Any], *keys: str) -> Any:
    value: Any = data
    for key in keys:
        if not isinstance(value, dict):
            return value if isinstance(value, int | float) else None
        value = value.get(key)
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, dict):
        value = value.get("mean", value.get("median"))  # a run takes the mean, and means of parts add up
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _from_rate(data: dict[str, Any], batch: float | None) -> float | None:
    rate = _number(data.get("samples_per_s"))
    return None if rate is None or batch is None else 1e3 * batch / rate


def _loader_ms(phases: Any) -> float:
    """Phases may be numbers or tables with a mean; those of the loader are told by their names."""
    if not isinstance(phases, dict):
        return 0.0
    return sum(_number(value) or 0.0 for name, value in phases.items() if any(w in name.lower() for w in LOADER_WORDS))


def calibrate_transformer(job: TransformerJob, measured: Measured) -> TransformerJob:
    """The job with the compute term scaled to what one GPU did with ``measured.batch_size`` sequences per
    step.
    """
    alone = replace(
        job,
        layout=Layout(micro_batch=measured.batch_size, recompute=job.layout.recompute),
        global_batch=measured.batch_size,
        compute_scale=1.0,
        loader_ms=0.0,
    )
    scale = _scale(measured, step_time(alone).total)
    return replace(job, compute_scale=scale, loader_ms=measured.loader_ms)


def calibrate_vision(job: VisionJob, alone: VisionJob, measured: Measured) -> VisionJob:
    """``alone`` is the same model traced at the measured batch on one GPU."""
    scale = _scale(measured, vision_step_time(alone).total)
    return replace(job, compute_scale=scale, loader_ms=measured.loader_ms)


def _scale(measured: Measured, predicted_s: float) -> float:
    compute_ms = max(0.05 * measured.step_ms, measured.step_ms - measured.loader_ms)
    scale = compute_ms / (predicted_s * 1e3)
    if not 0.1 <= scale <= 20:
        raise UserError(
            f"the measured step ({measured.step_ms:.1f} ms) is {scale:.2g} times the predicted one "
            f"({predicted_s * 1e3:.1f} ms): it is not the same model, batch or GPU",
            hint="give the measurement of this model on this kind of GPU",
        )
    return scale
