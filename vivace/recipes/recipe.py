"""``Recipe``: everything that a training is made from, typed. Needs no torch.

A key that does not exist, a value of the wrong type and a duration in the wrong unit are refused when the file is read
(``reading``); settings that contradict each other are refused by ``checking``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer, PlainValidator, field_validator

from vivace.durations import Duration, DurationUnit
from vivace.errors import UserError
from vivace.records.base import Part, Record
from vivace.records.transformer import TransformerSizes

__all__ = [
    "OPTIMIZERS", "AugmentPart", "CheckpointPart", "DataPart", "FaultPart", "LogPart", "ModelPart", "ObjectivePart",
    "OptimPart", "Phase", "Recipe", "SchedulePart", "SpeedPart", "ValidationPart",
]  # fmt: skip

OPTIMIZERS = ("adamw", "lamb", "larc", "lars", "lion", "muon", "nadamw", "schedulefree", "sgd", "shampoo")
SCHEDULES = ("constant", "cosine", "exponential", "onecycle", "poly", "step", "wsd")

_EXAMPLES = {
    DurationUnit.EPOCHS: "37ep", DurationUnit.STEPS: "500ba", DurationUnit.SAMPLES: "1e6samples",
    DurationUnit.TOKENS: "1e9tok", DurationUnit.SECONDS: "20min",
}  # fmt: skip


def _reader(*units: DurationUnit) -> Callable[[Any], Duration]:
    examples = ", ".join(_EXAMPLES[unit] for unit in units)

    def read(value: Any) -> Duration:
        if not isinstance(value, str | Duration):
            raise ValueError(f"{value!r} has no unit; allowed: {examples}")
        try:
            found = Duration.parse(value) if isinstance(value, str) else value
        except UserError:
            raise ValueError(f"{value!r} is not a duration; allowed: {examples}") from None
        if found.unit not in units:
            raise ValueError(f"{value!r} is in the wrong unit; allowed: {examples}")
        return found

    return read


_COUNTED = (DurationUnit.EPOCHS, DurationUnit.STEPS, DurationUnit.SAMPLES, DurationUnit.TOKENS)
Counted = Annotated[Duration, PlainValidator(_reader(*_COUNTED)), PlainSerializer(str)]
"""A number of epochs, steps, samples or tokens: it falls on the same step in every run."""
CountedOrTime = Annotated[
    Duration, PlainValidator(_reader(*_COUNTED, DurationUnit.SECONDS)), PlainSerializer(str)
]  # fmt: skip
Epochs = Annotated[Duration, PlainValidator(_reader(DurationUnit.EPOCHS)), PlainSerializer(str)]


def _d(text: str) -> Duration:
    return Duration.parse(text)


class ModelPart(Part):
    name: str = Field(
        "resnet18", description="gpt, resnet18 to resnet152, cifarnet; torchvision:, timm:, hf:NAME; FILE.py:FUNCTION"
    )
    args: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the model's function")
    stem: Literal["imagenet", "cifar"] = Field("imagenet", description="of resnets; cifar: 3x3, no pooling, for 32x32")
    sizes: TransformerSizes = Field(default_factory=TransformerSizes, description="of gpt")
    mup_base_width: int | None = Field(
        None, ge=1, description="µP, of gpt with adamw: a rate tuned at this hidden width stays right at sizes.hidden"
    )
    mup_base_heads: int | None = Field(None, ge=1, description="heads at that width; none: as many as sizes.heads")
    weights: str | None = Field(None, description="first weights: a folder of checkpoints, or a file .safetensors")
    lora_rank: int | None = Field(
        None, ge=1, description="LoRA, of gpt: train additions of this rank to the blocks' matrices, and nothing else"
    )
    lora_alpha: float = Field(16.0, gt=0, description="of LoRA: additions count alpha / rank times")


class DataPart(Part):
    kind: Literal["images", "tokens", "own"] = "images"
    train: str | None = Field(
        None, description="generated, a folder of classes, a .parquet, a token or text file, or FILE.py:FUNCTION"
    )
    val: str | None = Field(None, description="the same for validation; none: no validation, or val_share")
    val_share: float = Field(0.0, ge=0, lt=1, description="of tokens: so much of the end of train is for validation")
    image_size: int = Field(224, ge=8)
    classes: int | None = Field(None, ge=2, description="none: as many as the data has (generated: 10)")
    samples: int = Field(1024, ge=1, description="in an epoch of generated data")
    seq_len: int = Field(256, ge=1)
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    resident: bool = Field(False, description="decode once, keep all images on the device")
    decoder: Literal["pillow", "torchvision", "nvjpeg"] = "pillow"
    workers: int = Field(2, ge=0, description="processes that read and decode")
    prefetch: int = Field(2, ge=1, description="batches per worker")
    corrupt_share: float = Field(0.01, ge=0, le=1, description="more unreadable images than this end the training")

    @field_validator("std")
    @classmethod
    def _positive(cls, values: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(values) <= 0:
            raise ValueError("all three must be above 0")
        return values


class AugmentPart(Part):
    crop: Literal["none", "resized", "shift"] = Field(
        "none", description="resized: random resized crop; shift: moved by a few pixels"
    )
    scale: tuple[float, float] = Field((0.08, 1.0), description="of crop=resized: share of the area")
    shift: int = Field(4, ge=1, description="of crop=shift: pixels")
    flip: Literal["none", "random", "alternating"] = Field(
        "none", description="alternating: each image every other epoch"
    )
    randaugment: int = Field(0, ge=0, description="operations per image; 0: none")
    magnitude: int = Field(9, ge=0, le=30, description="of randaugment")
    mixup: float = Field(0.0, ge=0, description="alpha; 0: none")
    cutmix: float = Field(0.0, ge=0, description="alpha; 0: none. With mixup: one of the two in each batch")


class ObjectivePart(Part):
    name: Literal["targets", "masked", "contrastive"] = Field(
        "targets",
        description="targets: a class or the next token; masked: hidden tokens (BERT); contrastive: views (SimCLR)",
    )
    mask_share: float = Field(0.15, gt=0, lt=1, description="of masked: so many of a sequence's tokens")
    temperature: float = Field(0.5, gt=0, description="of contrastive: similarities are divided by it")
    embedding: int = Field(128, ge=2, description="of contrastive: numbers that stand for a view")


class OptimPart(Part):
    name: Literal["adamw", "lamb", "larc", "lars", "lion", "muon", "nadamw", "schedulefree", "sgd", "shampoo"] = "sgd"
    lr: float = Field(0.1, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    decay_vectors: bool = Field(False, description="weight decay on biases and norms, too")
    momentum: float | None = Field(None, ge=0, lt=1, description="none: the optimizer's own default")
    nesterov: bool | None = Field(None, description="of sgd, lars, larc")
    betas: tuple[float, float] | None = Field(
        None, description="of adamw, nadamw, lamb, lion, muon, shampoo, schedulefree"
    )
    eps: float | None = Field(None, gt=0)
    trust: float | None = Field(None, gt=0, description="of lars, larc")
    clip_norm: float | None = Field(None, gt=0)
    ema: float | None = Field(
        None, gt=0, lt=1, description="decay; the average of the weights is validated and saved beside them"
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class SchedulePart(Part):
    name: Literal["constant", "cosine", "exponential", "onecycle", "poly", "step", "wsd"] = "constant"
    warmup: Counted | None = Field(None, description="linear, from 0 to the full rate")
    over: Counted | None = Field(None, description="none: the whole training")
    options: dict[str, float] = Field(
        default_factory=dict, description="of the schedule: {power = 2}; see docs/methods.md"
    )


class SpeedPart(Part):
    """The same practices that ``vivace run --with`` applies from outside, in the open. Names are the practices'."""

    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    channels_last: bool = False
    compile: bool | Literal["default", "reduce-overhead", "max-autotune"] = False
    fused_optimizer: bool = Field(False, description="of sgd, adamw")
    cudnn_benchmark: bool = False
    pin_memory: bool = True
    gpu_prefetch: bool = Field(True, description="the next batch travels while this one computes (CUDA)")
    sync_batch_norm: bool = Field(False, description="batch norms see the batches of all ranks")


class ValidationPart(Part):
    every: Counted = Field(_d("1ep"))
    batch: int | None = Field(None, ge=1, description="none: as in training")
    resize: float = Field(
        1.0, ge=1, description="shorter side before the middle is cut out, in image sizes; 1.143 is 256 for 224"
    )
    rectangles: bool = Field(False, description="images of like shape together, cut as little as possible")
    flip: bool = Field(False, description="the mean of the answers to an image and its mirror image")


class LogPart(Part):
    every: Counted = Field(_d("50ba"))
    tensorboard: Literal["auto", "on", "off"] = Field("auto", description="auto: where it is installed")


class FaultPart(Part):
    nan: Literal["stop", "skip"] = Field(
        "stop", description="skip leaves the step out; it reads the loss every step, which costs time on a GPU"
    )
    spike: Literal["ignore", "warn", "skip", "stop"] = "ignore"
    spike_factor: float = Field(
        3.0, gt=1, description="a loss so many times the median of the last 100 steps is a spike"
    )


class CheckpointPart(Part):
    folder: str | None = Field(None, description="checkpoints go here, and come from here; none: nothing is saved")
    every: CountedOrTime = Field(_d("1ep"))
    keep: int = Field(3, ge=1)
    background: bool = Field(True, description="steps go on while a checkpoint is written")
    on_error: Literal["warn", "stop"] = "warn"


class Phase(Part):
    """From epoch ``start`` on: smaller images at first, larger batches while they are small (fast.ai's recipe)."""

    start: Epochs
    image_size: int | None = Field(None, ge=8)
    batch: int | None = Field(None, ge=1)
    lr: float = Field(1.0, gt=0, description="factor of the learning rate")

    @field_validator("start", mode="before")
    @classmethod
    def _may_be_zero(cls, value: Any) -> Any:
        return Duration(0.0, DurationUnit.EPOCHS) if value in ("0ep", "0epochs") else value


class Recipe(Record):
    KIND: ClassVar[str] = "recipe"

    name: str = Field("recipe", description="of the run's folder")
    about: str = ""
    source: str = ""
    model: ModelPart = Field(default_factory=ModelPart)
    data: DataPart = Field(default_factory=DataPart)
    augment: AugmentPart = Field(default_factory=AugmentPart)
    objective: ObjectivePart = Field(default_factory=ObjectivePart)
    optim: OptimPart = Field(default_factory=OptimPart)
    schedule: SchedulePart = Field(default_factory=SchedulePart)
    speed: SpeedPart = Field(default_factory=SpeedPart)
    validation: ValidationPart = Field(default_factory=ValidationPart)
    log: LogPart = Field(default_factory=LogPart)
    faults: FaultPart = Field(default_factory=FaultPart)
    checkpoints: CheckpointPart = Field(default_factory=CheckpointPart)
    phases: tuple[Phase, ...] = ()
    duration: CountedOrTime = Field(_d("1ep"))
    batch: int = Field(256, ge=1, description="samples per step, over all ranks")
    accumulate: int = Field(1, ge=1, description="passes per step: the same batch in smaller pieces")
    loss: str = Field("cross_entropy", description="cross_entropy, mse, or FILE.py:FUNCTION of (outputs, targets)")
    practices: str | None = Field(None, description='what a tune kept: "@vivace-runs/train-001", or words of --with')
    layout: str | None = Field(None, description="dp4: replicas. Others need gpt or a resnet: see docs/parallel.md")
    seed: int = Field(0, ge=0, description="of weights, order and augmentation")
