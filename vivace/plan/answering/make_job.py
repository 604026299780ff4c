"""A request as a job: precision, batch and layout filled in with stated defaults, each listed as an assumption.

Called by ``planning.py`` and the CLI.
"""

from __future__ import annotations

from typing import cast

from vivace.errors import UserError
from vivace.plan.answering.find_model import is_config
from vivace.plan.answering.request import LayoutRequest, Request
from vivace.plan.facts.frameworks import framework
from vivace.plan.facts.optimizers import OPTIMIZERS
from vivace.plan.facts.precision import Precision, PrecisionRecipe, parse_precision
from vivace.plan.images.image_job import VisionJob, traced
from vivace.plan.jobs.job import Attention, TransformerJob
from vivace.plan.jobs.layout import check_layout
from vivace.plan.jobs.pipeline import BUBBLE_LEFT
from vivace.plan.machines.cluster import Site
from vivace.plan.models.transformer import Transformer
from vivace.plan.models.usual_batch import about_batch, default_global_batch
from vivace.records.layout import Layout, Recompute

__all__ = ["layout_for", "transformer_job", "vision_job"]

ATTENTIONS = ("flash", "fused-softmax", "eager")
LAYOUT_OPTIONS = {"tensor": "--tp", "pipeline": "--pp", "context": "--cp", "sequence_parallel": "--sp"}


def _precision(request: Request, site: Site, recipe: PrecisionRecipe) -> Precision:
    gpu = site.machine.gpu
    default = "bf16" if gpu.supports("bf16") else "fp16"
    precision = parse_precision(request.precision or default, recipe, gpu_has_bf16=gpu.supports("bf16"))
    if not gpu.supports(precision.compute):
        raise UserError(f"{gpu.name} does not support {precision.compute}", hint=f"use --precision {default}")
    return precision


def _checked(request: Request) -> None:
    if request.gpus < 1:
        raise UserError(f"--gpus is {request.gpus}; it must be at least 1", hint="use --gpus 1")
    if request.global_batch is not None and request.global_batch < 1:
        raise UserError(f"--global-batch is {request.global_batch}", hint="use --global-batch 1 or more")
    if request.attention not in ATTENTIONS:
        raise UserError(f"attention {request.attention!r} is not known", hint=f"one of {', '.join(ATTENTIONS)}")
    if request.optimizer is not None and request.optimizer not in OPTIMIZERS:
        raise UserError(f"optimizer {request.optimizer!r} is not known", hint=f"one of {', '.join(OPTIMIZERS)}")


def _about_model(request: Request, model: Transformer) -> list[str]:
    """What is said of a model that was not described in full, or whose attention is windowed."""
    notes = []
    if request.sizes:
        like = "Llama's (gated, rotary, no biases)" if model.gated else "GPT-2's (not gated, learned positions, biases)"
        notes.append(f"layers like {like}, the output layer tied to the embedding")
    if request.seq_len is None and is_config(request.model):
        notes.append(f"sequences of {model.seq_len:,} tokens, the longest that the config allows (--seq-len)")
    if model.attention_share(model.seq_len) < 1.0:
        where = f"sliding window of {model.window:,} tokens in {model.windowed_layers} of {model.layers} layers"
        flash = request.attention == "flash"
        how = "attention outside it is skipped" if flash else f"{request.attention} attention computes all of it"
        notes.append(f"{where}: {how}")
    return notes


def layout_for(request: LayoutRequest, model: Transformer, gpus: int, per_node: int, global_batch: int) -> Layout:
    """The asked layout, checked; open fields take what people use with the given ones."""
    tensor, pipeline, context = request.tensor or 1, request.pipeline or 1, request.context or 1
    _refuse_unknown(request)
    asked = Layout(
        data=1,
        tensor=request.tensor if request.tensor is not None else 1,
        pipeline=request.pipeline if request.pipeline is not None else 1,
        context=request.context if request.context is not None else 1,
        virtual_stages=request.virtual_stages if request.virtual_stages is not None else 1,
        sequence_parallel=tensor > 1 if request.sequence_parallel is None else request.sequence_parallel,
        zero=request.zero if request.zero is not None else (1 if tensor * pipeline * context > 1 else 0),
        shard_size=request.shard_size or 0,
        micro_batch=request.micro_batch if request.micro_batch is not None else 1,
        recompute=cast(Recompute, request.recompute or "none"),
        schedule=request.schedule or ("interleaved" if (request.virtual_stages or 1) > 1 else "1f1b"),  # type: ignore[arg-type]
    )
    return check_layout(asked, model, gpus, per_node, global_batch)


def _refuse_unknown(request: LayoutRequest) -> None:
    if request.zero is not None and request.zero not in (0, 1, 2, 3):
        raise UserError(f"ZeRO stage {request.zero} does not exist", hint=f"use --zero {min(3, max(0, request.zero))}")
    if request.schedule is not None and request.schedule not in BUBBLE_LEFT:
        raise UserError(f"schedule {request.schedule!r} is not known", hint=f"one of {', '.join(BUBBLE_LEFT)}")
    if request.recompute is not None and request.recompute not in ("none", "selective", "full"):
        raise UserError(f"recompute {request.recompute!r} is not known", hint="none, selective or full")


def transformer_job(request: Request, model: Transformer, site: Site) -> tuple[TransformerJob, tuple[str, ...]]:
    """The job with the asked layout (or a plain one, for the search to replace), and what was assumed."""
    _checked(request)
    notes = []
    batch = request.global_batch
    if batch is None:
        batch = default_global_batch(model, request.gpus)
        notes.append(about_batch(batch, model))
    notes.extend(_about_model(request, model))
    parallel = (request.layout.tensor or 1) * (request.layout.pipeline or 1) > 1
    software = "megatron-core" if parallel else ("compiled" if request.compile else "torch")
    precision = _precision(request, site, framework(software).recipe(request.layout.zero or 0))
    layout = Layout()
    if request.layout.given:
        layout = layout_for(request.layout, model, request.gpus, site.machine.gpus_per_node, batch)
    attention = cast(Attention, request.attention)
    optimizer = request.optimizer or "adamw"
    job = TransformerJob(model, site.machine, layout, batch, model.seq_len, precision, software, attention, optimizer)
    return job, tuple(notes)


def _refuse_layout(layout: LayoutRequest, name: str) -> None:
    """Image models are planned with data parallelism alone."""
    given = [field for field, value in vars(layout).items() if value is not None and field != "micro_batch"]
    if given:
        option = LAYOUT_OPTIONS.get(given[0], f"--{given[0].replace('_', '-')}")
        raise UserError(f"{option} is for transformers, and {name} is an image model", hint=f"leave {option} out")


def vision_job(request: Request, name: str, site: Site) -> tuple[VisionJob, tuple[str, ...]]:
    """Data parallel; the batch of a GPU is the global batch over the GPUs (256 each when it is not given)."""
    _checked(request)
    _refuse_layout(request.layout, name)
    notes = []
    precision = _precision(request, site, framework("torch").precision_recipe)
    total = request.global_batch
    if total is None:
        total = 256 * request.gpus
        notes.append("256 images per GPU")
    if total % request.gpus:
        better = max(request.gpus, round(total / request.gpus) * request.gpus)
        raise UserError(
            f"global batch {total} is not a multiple of {request.gpus} GPUs",
            hint=f"use --global-batch {better}",
        )
    per_gpu = total // request.gpus
    micro = request.layout.micro_batch or per_gpu
    if per_gpu % micro:
        raise UserError(
            f"micro batch {micro} does not divide {per_gpu} images per GPU",
            hint=f"use --micro-batch {per_gpu}",
        )
    model = traced(name, micro, request.image_side, int(precision.activation_bytes))
    optimizer = request.optimizer or "sgd"
    if request.optimizer is None:
        notes.append("optimizer SGD with momentum, usual for image models")
    software = "compiled" if request.compile else "torch"
    job = VisionJob(model, site.machine, request.gpus, precision, software, optimizer, accumulation=per_gpu // micro)
    return job, tuple(notes)
