"""``TrainSettings``: everything that a training is made from. Typed and small; needs no torch.

``vivace train`` makes it from its options, hands it to every process, and keeps it beside the logs.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, ValidationError

from vivace.errors import UserError
from vivace.parallel import legal
from vivace.parallel.engine import Engine
from vivace.records.base import Part, Record
from vivace.records.layout import Layout
from vivace.records.transformer import TransformerSizes

__all__ = ["IMAGE_MODELS", "MODELS", "TrainSettings", "check", "with_changes"]

IMAGE_MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
MODELS = ("gpt", *IMAGE_MODELS)


class DataSettings(Part):
    tokens: str | None = Field(None, description="a file of tokens (uint16, or uint32 above 65,536); none: made up")
    seq_len: int = Field(64, ge=1)
    image_size: int = Field(32, ge=8)
    classes: int = Field(10, ge=2)
    seed: int = Field(0, ge=0)


class OptimSettings(Part):
    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = Field(3e-4, gt=0)
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(0.1, ge=0, description="of matrices, not of norms and biases")
    warmup_steps: int = Field(0, ge=0)
    decay: Literal["cosine", "linear", "none"] = "cosine"
    final_share: float = Field(0.1, ge=0, le=1, description="of lr, at the last step")
    clip_norm: float | None = Field(1.0, gt=0)


class WatchSettings(Part):
    silent_s: float = Field(30, gt=0, description="a rank that says nothing for so long is taken for dead")
    hung_step_s: float | None = Field(None, gt=0, description="a longer step prints the stacks of all ranks, and ends")
    collective_timeout_s: float = Field(1800, gt=0, description="torch's own limit for one exchange")


class CheckpointSettings(Part):
    folder: str | None = Field(None, description="checkpoints go here, and come from here; none: nothing is saved")
    every_steps: int | None = Field(100, ge=1)
    every_minutes: float | None = Field(None, gt=0)
    keep: int = Field(3, ge=1, description="so many of the last")
    background: bool = Field(True, description="steps go on while a checkpoint is written")
    on_error: Literal["warn", "stop"] = Field("warn", description="on a full disk, or without permission")


class TrainSettings(Record):
    KIND: ClassVar[str] = "train-settings"

    model: str = "gpt"
    layout: Layout = Field(default_factory=Layout)
    sizes: TransformerSizes = Field(default_factory=TransformerSizes)
    data: DataSettings = Field(default_factory=DataSettings)
    optim: OptimSettings = Field(default_factory=OptimSettings)
    engine: Engine = Field(default_factory=Engine)
    watch: WatchSettings = Field(default_factory=WatchSettings)
    checkpoints: CheckpointSettings = Field(default_factory=CheckpointSettings)
    steps: int = Field(100, ge=1)
    global_batch: int = Field(8, ge=1)
    seed: int = Field(0, ge=0, description="of the first weights")
    log_every: int = Field(10, ge=1)


def with_changes(settings: TrainSettings, changes: Sequence[str]) -> TrainSettings:
    """``optim.lr=3e-4`` and the like; a name that does not exist is refused with the nearest one.

    >>> with_changes(TrainSettings(), ["optim.lr=0.5", "sizes.layers=2"]).optim.lr
    0.5
    """
    fields = settings.model_dump(mode="json")
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise UserError(f"{change!r} sets nothing", hint="--set optim.lr=3e-4")
        _put(fields, name.strip().split("."), text, change)
    try:
        return TrainSettings.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise UserError(f"{where}: {first['msg']}", hint=f"--set {where}=…") from None


def _put(fields: dict[str, Any], path: list[str], text: str, change: str) -> None:
    here = fields
    for step in path[:-1]:
        inner = here.get(step)
        if not isinstance(inner, dict):
            _refuse(step, here, change)
        here = inner  # type: ignore[assignment]
    if path[-1] not in here or path[-1] in ("kind", "schema_version"):
        _refuse(path[-1], here, change)
    try:
        here[path[-1]] = json.loads(text)
    except ValueError:
        here[path[-1]] = text


def _refuse(name: str, fields: dict[str, Any], change: str) -> None:
    known = [field for field in fields if field not in ("kind", "schema_version")]
    near = difflib.get_close_matches(name, known, 1)
    raise UserError(
        f"there is no setting {change.partition('=')[0]!r}",
        hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}",
    )


def described(model: type[BaseModel] = TrainSettings, prefix: str = "") -> list[tuple[str, str, str]]:
    """Every setting: its name, default and description. For help."""
    rows: list[tuple[str, str, str]] = []
    for name, field in model.model_fields.items():
        if name in ("kind", "schema_version", "layout", "model"):
            continue
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            rows += described(type(default), f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", json.dumps(default), field.description or ""))
    return rows


def check(settings: TrainSettings, world: int) -> None:
    """Refuse what cannot run, before any process starts and again in each."""
    if settings.model not in MODELS:
        near = difflib.get_close_matches(settings.model, MODELS, 1)
        raise UserError(f"no model called {settings.model!r}", hint=f"one of {', '.join(near or MODELS)}")
    layout = settings.layout
    legal.check_world(layout, world)
    legal.check_batch(layout, settings.global_batch)
    legal.check_engine(layout, settings.engine)
    if settings.model == "gpt":
        legal.check_transformer(layout, settings.sizes, settings.data.seq_len)
    else:
        legal.check_data_parallel(layout, settings.model)
        if layout.recompute != "none" or settings.engine.compile:
            raise UserError(
                "compile and recompute go by a transformer's blocks", hint=f"leave them out for {settings.model}"
            )
