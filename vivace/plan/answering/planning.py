"""The whole answer to one request: find the job, calibrate it, search its layout, plan it, advise.

Joins the other modules and holds no formula. Called by the CLI.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vivace.errors import UserError
from vivace.plan.answering.answer import plan_transformer, plan_vision
from vivace.plan.answering.calibration import calibrate_transformer, calibrate_vision, read_measurement
from vivace.plan.answering.make_job import transformer_job, vision_job
from vivace.plan.answering.request import Request
from vivace.plan.images.image_job import traced
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.layouts.scaling import ScalingPoint, default_counts, scaling_curve
from vivace.plan.layouts.search import Found, explain, pareto, search
from vivace.plan.layouts.sizing import convolution_advice, transformer_advice
from vivace.plan.machines.cluster import Site
from vivace.plan.models.transformer import Transformer
from vivace.plan.run.whole_run import RunQuestion
from vivace.records.plan import Plan, PlanAlternative, PlanPoint

__all__ = ["Scaling", "Wanted", "make_plan", "scaling_of"]


@dataclass(frozen=True)
class Wanted:
    """What should come with the plan."""

    question: RunQuestion | None = None
    measurement: Path | None = None
    search: bool = False
    """Also when a layout is given."""
    keep: int = 5
    """Layouts to return, the best among them."""


@dataclass(frozen=True)
class Scaling:
    strong: list[PlanPoint]
    """The batch stays."""
    weak: list[PlanPoint]
    """The batch per GPU stays."""
    pareto: list[PlanPoint]


def make_plan(request: Request, model: Transformer | str, site: Site, wanted: Wanted) -> Plan:
    """``model`` is a transformer, or the name of an image model."""
    if isinstance(model, Transformer):
        return _of_transformer(request, model, site, wanted)
    return _of_image_model(request, model, site, wanted)


def _of_transformer(request: Request, model: Transformer, site: Site, wanted: Wanted) -> Plan:
    job, notes, source = _calibrated(request, model, site, wanted.measurement)
    others: tuple[PlanAlternative, ...] = ()
    if wanted.search or not request.layout.given:
        found = search(job, request.gpus, wanted.keep)
        job, others = found[0].job, tuple(_alternative(found[0], one) for one in found[1:])
        notes = (*notes, "the layout was found by search")
    plan = plan_transformer(job, site, wanted.question, notes, source)
    advice = tuple(str(one) for one in transformer_advice(job))
    return plan.model_copy(update={"alternatives": others, "advice": advice})


def _calibrated(
    request: Request, model: Transformer, site: Site, measurement: Path | None
) -> tuple[TransformerJob, tuple[str, ...], str | None]:
    """The job, what was assumed, and the measurement that it was scaled to."""
    job, notes = transformer_job(request, model, site)
    if measurement is None:
        return job, notes, None
    return calibrate_transformer(job, read_measurement(measurement)), notes, str(measurement)


def _alternative(winner: Found, other: Found) -> PlanAlternative:
    return PlanAlternative(
        layout=other.job.layout,
        step_ms=other.seconds * 1e3,
        memory_gib=other.memory_gib,
        why=explain(winner, other),
    )


def _of_image_model(request: Request, name: str, site: Site, wanted: Wanted) -> Plan:
    if wanted.search:
        raise UserError(
            f"--search is for transformers, and {name} is an image model",
            hint="leave it out: image models are planned data-parallel",
        )
    job, notes = vision_job(request, name, site)
    source = None
    if wanted.measurement is not None:
        measured = read_measurement(wanted.measurement)
        element = int(job.precision.activation_bytes)
        model = traced(name, measured.batch_size, request.image_side, element)
        alone = replace(job, model=model, gpus=1, accumulation=1)
        job, source = calibrate_vision(job, alone, measured), str(wanted.measurement)
    plan = plan_vision(job, site, request.image_side, wanted.question, notes, source)
    advice = convolution_advice(job.model, job.precision.compute)
    return plan.model_copy(update={"advice": tuple(str(one) for one in advice)})


def scaling_of(request: Request, model: Transformer | str, site: Site, measurement: Path | None) -> Scaling:
    """Strong and weak scaling up to the GPUs that were asked for, and the best trade-offs among them."""
    if not isinstance(model, Transformer):
        raise UserError(f"--scaling is for transformers, and {model} is an image model", hint="leave it out")
    job, _, _ = _calibrated(request, model, site, measurement)
    counts = default_counts(request.gpus, site.machine.gpus_per_node)
    strong, weak = scaling_curve(job, counts), scaling_curve(job, counts, weak=True)
    return Scaling(
        strong=[_scaled(point) for point in strong],
        weak=[_scaled(point) for point in weak],
        pareto=[_point(one) for one in pareto([point.best for point in strong])],
    )


def _scaled(point: ScalingPoint) -> PlanPoint:
    return _point(point.best).model_copy(update={"efficiency": point.efficiency})


def _point(found: Found) -> PlanPoint:
    job = found.job
    return PlanPoint(
        gpus=job.layout.gpus,
        layout=job.layout,
        step_ms=found.seconds * 1e3,
        samples_per_s=1 / found.seconds_per_sample,
        memory_gib=found.memory_gib,
        joules_per_sample=found.joules_per_sample,
    )
