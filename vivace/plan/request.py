"""What a person asked for, turned into a job: model by name, sizes, config or file; cluster or GPU; batch and
layout.

Fills what was left open with stated defaults, each listed as an assumption. Called by the CLI only.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from vivace.errors import UserError
from vivace.hardware.specs import ClusterSpec
from vivace.plan.cluster import Site, machine_for, machine_from_gpu
from vivace.plan.config_file import from_config
from vivace.plan.gpu_names import known_gpu
from vivace.plan.job import Attention, TransformerJob
from vivace.plan.layout import Layout, Recompute, check_layout
from vivace.plan.limits import at_least
from vivace.plan.models import named_transformer, unknown_model
from vivace.plan.optimizers import OPTIMIZERS
from vivace.plan.pipeline import BUBBLE_LEFT
from vivace.plan.precision import Precision, parse_precision
from vivace.plan.transformer import Transformer
from vivace.plan.usual_batch import about_batch, default_global_batch
from vivace.plan.vision import VisionJob, image_model_maker, traced

__all__ = [
    "LayoutRequest",
    "Request",
    "find_model",
    "find_site",
    "layout_for",
    "transformer_job",
    "vision_job",
]

IMAGE_SIDE = 224
LAYOUT_OPTIONS = {"tensor": "--tp", "pipeline": "--pp", "context": "--cp", "sequence_parallel": "--sp"}
ATTENTIONS = ("flash", "fused-softmax", "eager")
SHAPE = "the head of vivace/hardware/catalogue.py shows the shape of such a file"


@dataclass(frozen=True)
class LayoutRequest:
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    virtual_stages: int | None = None
    sequence_parallel: bool | None = None
    zero: int | None = None
    shard_size: int | None = None
    micro_batch: int | None = None
    recompute: str | None = None
    schedule: str | None = None

    @property
    def given(self) -> bool:
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True)
class Request:
    model: str
    cluster: str | None = None
    gpu: str | None = None
    gpus: int = 1
    gpus_per_node: int = 8
    global_batch: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    precision: str | None = None
    optimizer: str | None = None
    attention: str = "flash"
    compile: bool = False
    layout: LayoutRequest = field(default_factory=LayoutRequest)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def image_side(self) -> int:
        return IMAGE_SIDE if self.image_size is None else self.image_size


def find_model(request: Request) -> Transformer | str:
    """A transformer, or the name of an image model."""
    at_least("--seq-len", request.seq_len, 1)
    at_least("--image-size", request.image_size, 1)
    found = _found_model(request)
    if isinstance(found, Transformer) and request.image_size is not None:
        raise UserError(f"--image-size is for image models, and {found.name} is a transformer", hint="use --seq-len")
    if isinstance(found, str) and request.seq_len is not None:
        raise UserError(f"--seq-len is for transformers, and {found} is an image model", hint="use --image-size")
    return found


def is_config(name: str) -> bool:
    """A JSON file, or a folder that holds a ``config.json``."""
    return name.endswith(".json") or Path(name, "config.json").is_file()


def _found_model(request: Request) -> Transformer | str:
    if request.sizes:
        return _from_sizes(request)
    if is_config(request.model):
        path = Path(request.model)
        return from_config(path / "config.json" if path.is_dir() else path, request.seq_len)
    named = named_transformer(request.model)
    if named is not None:
        return _at_length(named, request.seq_len)
    if image_model_maker(request.model, request.image_side) is not None:
        return request.model
    from vivace.plan.zoo import known_image_models

    raise unknown_model(request.model, known_image_models())


def _at_length(model: Transformer, seq_len: int | None) -> Transformer:
    """A shorter sequence leaves learned positions as they are; a longer one needs more of them."""
    if seq_len is None:
        return model
    rows = max(model.seq_len, seq_len) if model.positions == "learned" else 0
    return replace(model, seq_len=seq_len, position_rows=rows)


def _from_sizes(request: Request) -> Transformer:
    sizes = dict(request.sizes)
    for name in ("layers", "hidden", "heads"):
        if name not in sizes:
            raise UserError(
                f"a transformer by its sizes needs --{name}", hint="--layers, --hidden and --heads are needed"
            )
    for name, value in sizes.items():
        at_least(f"--{name.replace('_', '-')}", value, 1)
    _check_heads(sizes["hidden"], sizes["heads"], sizes.get("kv_heads", sizes["heads"]))
    gated = bool(sizes.get("ffn")) and sizes["ffn"] < 4 * sizes["hidden"] and "kv_heads" in sizes
    return Transformer(
        name=request.model,
        layers=sizes["layers"],
        hidden=sizes["hidden"],
        heads=sizes["heads"],
        kv_heads=sizes.get("kv_heads", sizes["heads"]),
        ffn=sizes.get("ffn", 4 * sizes["hidden"]),
        vocab=sizes.get("vocab", 50_304),
        seq_len=2048 if request.seq_len is None else request.seq_len,
        gated=gated,
        biases=not gated,
        positions="rotary" if gated else "learned",
        dropout=not gated,
    )


def _check_heads(hidden: int, heads: int, kv_heads: int) -> None:
    if hidden % heads:
        raise UserError(
            f"--hidden {hidden} cannot be cut into --heads {heads}",
            hint=f"use --heads {_nearest_divisor(hidden, heads)}",
        )
    if heads % kv_heads:
        raise UserError(
            f"--heads {heads} cannot share --kv-heads {kv_heads} evenly",
            hint=f"use --kv-heads {_nearest_divisor(heads, kv_heads)}",
        )


def _nearest_divisor(whole: int, wanted: int) -> int:
    """
    >>> _nearest_divisor(768, 7)
    8
    """
    divisors = [n for n in range(1, min(whole, 2 * wanted) + 1) if whole % n == 0]
    return min(divisors, key=lambda n: (abs(n - wanted), -n))


def find_site(request: Request) -> Site:
    at_least("--gpus-per-node", request.gpus_per_node, 1)
    site = _found_site(request)
    _check_size(request.gpus, site.cluster)
    return site


def _check_size(gpus: int, cluster: ClusterSpec | None) -> None:
    """As ``vivace submit`` refuses it; a cluster of unknown size takes any number."""
    if cluster is None or cluster.gpus_in_total is None or gpus <= cluster.gpus_in_total:
        return
    nodes = -(-gpus // cluster.gpus_per_node)
    raise UserError(
        f"{gpus} GPUs are {nodes} nodes, and {cluster.key} has {cluster.nodes}",
        hint=f"at most --gpus {cluster.gpus_in_total}",
    )


def _found_site(request: Request) -> Site:
    if request.cluster and request.cluster.endswith(".toml"):
        return machine_for(_cluster_of_file(Path(request.cluster)))
    if request.cluster:
        return machine_for(request.cluster)
    if not request.gpu:
        raise UserError("neither a cluster nor a GPU is given", hint="use --cluster NAME or --gpu NAME")
    return machine_from_gpu(known_gpu(request.gpu), min(request.gpus_per_node, max(1, request.gpus)))


def _cluster_of_file(path: Path) -> str:
    """The first ``[cluster.NAME]`` of a user's file, which joins the catalogue for the rest of this
    process.
    """
    try:
        names = list(tomllib.loads(path.read_text(encoding="utf-8")).get("cluster", {}))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read: {error}", hint="see the head of vivace/hardware/catalogue.py"
        ) from None
    if not names:
        raise UserError(f"{path} has no [cluster.NAME] entry", hint="see the head of vivace/hardware/catalogue.py")
    listed = os.environ.get("VIVACE_CATALOGUE", "")
    os.environ["VIVACE_CATALOGUE"] = f"{path}{os.pathsep}{listed}" if listed else str(path)
    return str(names[0])


def _precision(request: Request, site: Site, framework: str) -> Precision:
    gpu = site.machine.gpu
    default = "bf16" if gpu.supports("bf16") else "fp16"
    precision = parse_precision(request.precision or default, framework=framework, gpu_has_bf16=gpu.supports("bf16"))
    if not gpu.supports(precision.compute):
        raise UserError(f"{gpu.name} has no units for {precision.compute}", hint=f"use --precision {default}")
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
    if asked.zero not in (0, 1, 2, 3):
        raise UserError(f"ZeRO stage {asked.zero} does not exist", hint=f"use --zero {min(3, max(0, asked.zero))}")
    if asked.schedule not in BUBBLE_LEFT:
        raise UserError(f"schedule {asked.schedule!r} is not known", hint=f"one of {', '.join(BUBBLE_LEFT)}")
    if asked.recompute not in ("none", "selective", "full"):
        raise UserError(f"recompute {asked.recompute!r} is not known", hint="none, selective or full")
    return check_layout(asked, model, gpus, per_node, global_batch)


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
    framework = "fsdp" if request.layout.zero == 3 else ("megatron" if parallel else "torch")
    precision = _precision(request, site, framework)
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
    precision = _precision(request, site, "torch")
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
