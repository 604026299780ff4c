"""Refuses a recipe whose settings contradict each other, before anything starts. Needs no torch.

One function per subject; each error begins with the key and ends with what is allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from vivace.durations import Duration, DurationUnit
from vivace.errors import UserError
from vivace.methods.schedule import SCHEDULES
from vivace.recipes.recipe import Recipe

__all__ = ["check"]

_MOMENTUM = ("sgd", "lars", "larc", "muon")
_NESTEROV = ("sgd", "lars", "larc")
_TRUST = ("lars", "larc")
_NO_EPS = ("sgd", "lars", "larc", "lion")
_FUSED = ("sgd", "adamw")


def check(recipe: Recipe, world: int = 1) -> None:
    """``world``: the processes that train together."""
    _data(recipe)
    _durations(recipe)
    _schedule(recipe)
    _optimizer(recipe)
    _mup(recipe)
    _lora(recipe)
    _objective(recipe)
    _contrastive(recipe)
    _images_only(recipe)
    _phases(recipe)
    _shares(recipe, world)


def _refuse(key: str, why: str, allowed: str) -> None:
    raise UserError(f"{key}: {why}", hint=allowed)


def _data(recipe: Recipe) -> None:
    data, model = recipe.data, recipe.model.name
    if data.train is None:
        kinds = {
            "images": "a folder of classes or a .parquet file",
            "tokens": "a token file or a .txt",
            "own": "FILE.py:FUNCTION",
        }
        _refuse("data.train", "this recipe needs data", f"--set data.train=…: {kinds[data.kind]}, or generated")
    if data.val_share and data.kind != "tokens":
        _refuse("data.val_share", f"{data.kind} have no end to keep for validation", "name data.val")
    if data.val_share and data.val is not None:
        _refuse("data.val_share", "data.val is given as well", "one of the two")
    if model == "gpt" and data.kind != "tokens":
        _refuse("model.name", f"gpt reads tokens, and data.kind is {data.kind}", "data.kind = tokens")
    if data.kind == "tokens" and (model.startswith("resnet") or model == "cifarnet"):
        _refuse("model.name", f"{model} reads images, and data.kind is tokens", "gpt, hf:NAME or FILE.py:FUNCTION")
    if data.kind == "own" and data.train == "generated":
        _refuse("data.train", "generated data are images or tokens", "data.kind = images or tokens")
    if data.resident and data.kind != "images":
        _refuse("data.resident", f"it is for images, and data.kind is {data.kind}", "data.resident = false")


def _counted(recipe: Recipe) -> Iterator[tuple[str, Duration | None]]:
    yield "duration", recipe.duration
    yield "schedule.warmup", recipe.schedule.warmup
    yield "schedule.over", recipe.schedule.over
    yield "validation.every", recipe.validation.every
    yield "log.every", recipe.log.every
    yield "checkpoints.every", recipe.checkpoints.every


def _durations(recipe: Recipe) -> None:
    for key, duration in _counted(recipe):
        if duration is not None and duration.unit is DurationUnit.TOKENS and recipe.data.kind != "tokens":
            _refuse(key, f"{duration} counts tokens, and data.kind is {recipe.data.kind}", "37ep, 500ba, 1e6samples")


def _schedule(recipe: Recipe) -> None:
    schedule, name = recipe.schedule, recipe.schedule.name
    if name == "constant":
        if schedule.options:
            _refuse("schedule.options", "a constant rate has none", f"schedule.name = one of {', '.join(SCHEDULES)}")
        return
    if recipe.optim.name == "schedulefree":
        _refuse("schedule.name", f"schedulefree needs no schedule, and this one is {name}", "constant (with a warmup)")
    if recipe.duration.unit is DurationUnit.SECONDS and schedule.over is None:
        _refuse(
            "schedule.over",
            f"duration is {recipe.duration}: nobody knows how many steps that will be, and {name} must know",
            "schedule.over = 30ep (or ba, samples, tok), schedule.name = constant, or another duration",
        )
    known = [field.name for field in dataclasses.fields(SCHEDULES[name]) if field.name not in ("steps", "warmup")]
    for option in schedule.options:
        if option not in known:
            _refuse(f"schedule.options.{option}", f"{name} does not have it", f"allowed: {', '.join(known) or 'none'}")


def _optimizer(recipe: Recipe) -> None:
    optim, name = recipe.optim, recipe.optim.name
    for key, value, takes in (
        ("momentum", optim.momentum, _MOMENTUM),
        ("nesterov", optim.nesterov, _NESTEROV),
        ("trust", optim.trust, _TRUST),
    ):
        if value is not None and name not in takes:
            _refuse(f"optim.{key}", f"{name} does not have it", f"optim.name = one of {', '.join(takes)}")
    if optim.betas is not None and name in _NESTEROV:
        _refuse("optim.betas", f"{name} does not have them", "optim.momentum")
    if optim.eps is not None and name in _NO_EPS:
        _refuse("optim.eps", f"{name} does not have it", "leave it out")
    if recipe.speed.fused_optimizer and name not in _FUSED:
        _refuse(
            "speed.fused_optimizer", f"there is no fused {name}", f"optim.name = one of {', '.join(_FUSED)}, or false"
        )
    if optim.ema is not None and name == "schedulefree":
        _refuse("optim.ema", "schedulefree averages the weights itself", "leave it out")


def _mup(recipe: Recipe) -> None:
    model, sizes = recipe.model, recipe.model.sizes
    if model.mup_base_width is None:
        if model.mup_base_heads is not None:
            _refuse("model.mup_base_heads", "there is no base width", "--set model.mup_base_width=128")
        return
    if model.name != "gpt":
        _refuse("model.mup_base_width", f"the widths of {model.name} are not known", "model.name = gpt")
    if recipe.optim.name != "adamw":
        _refuse(
            "model.mup_base_width", f"its rates are those of adamw, not of {recipe.optim.name}", "optim.name = adamw"
        )
    heads = model.mup_base_heads or sizes.heads
    if model.mup_base_width % heads:
        _refuse(
            "model.mup_base_width", f"{model.mup_base_width} is no multiple of {heads} heads", f"a multiple of {heads}"
        )


def _lora(recipe: Recipe) -> None:
    model = recipe.model
    if model.lora_rank is None:
        return
    if model.name != "gpt":
        _refuse("model.lora_rank", f"the layers of {model.name} are not known", "model.name = gpt")
    if model.weights is None:
        _refuse("model.lora_rank", "there is no trained model to add to", "--set model.weights=FOLDER")
    if model.mup_base_width is not None:
        _refuse("model.lora_rank", "µP says nothing about its matrices", "leave model.mup_base_width out")


def _objective(recipe: Recipe) -> None:
    model, hides = recipe.model, recipe.objective.name == "masked"
    if hides and (model.name != "gpt" or recipe.data.kind != "tokens"):
        _refuse("objective.name", f"masked hides tokens of gpt, and model.name is {model.name}", "model.name = gpt")
    if hides and (recipe.data.train or "").partition(":")[0].endswith(".py"):
        _refuse("objective.name", "data of your own bring their own targets", "a token file, a .txt, or generated")
    if hides and model.sizes.causal:
        _refuse("model.sizes.causal", "a masked token is found from both sides", "--set model.sizes.causal=false")
    if model.name == "gpt" and not hides and not model.sizes.causal:
        _refuse(
            "model.sizes.causal", "each token would see the next one, its target", "true, or objective.name = masked"
        )


def _contrastive(recipe: Recipe) -> None:
    if recipe.objective.name != "contrastive":
        return
    data, augment, model = recipe.data, recipe.augment, recipe.model.name
    own = (data.train or "").partition(":")[0].endswith(".py")
    if data.kind != "images" or own:
        _refuse("objective.name", "contrastive makes two views of images in files", "data.kind = images")
    if model in ("gpt", "cifarnet"):
        _refuse(
            "objective.name", f"{model} has no last layer for a projection", "a resnet, timm:NAME, FILE.py:FUNCTION"
        )
    if recipe.loss != "cross_entropy":
        _refuse("loss", "contrastive has its own", "leave it out")
    if recipe.accumulate > 1:
        _refuse("accumulate", "a view is compared with all others of its batch, in one pass", "1, or more ranks")
    if augment.crop == "resized" and not data.resident and data.train != "generated":
        _refuse("augment.crop", "workers cut files once, and two views need two cuts", "data.resident = true")
    if augment.crop == "none" and augment.flip == "none" and not augment.randaugment:
        _refuse("augment", "both views of an image would be the same", "augment.crop = resized")
    for key, given in {
        "augment.flip": augment.flip == "alternating",
        "augment.mixup": augment.mixup > 0,
        "augment.cutmix": augment.cutmix > 0,
        "optim.label_smoothing": recipe.optim.label_smoothing > 0,
        "validation.flip": recipe.validation.flip,
        "validation.rectangles": recipe.validation.rectangles,
        "data.decoder": data.decoder == "nvjpeg",
    }.items():
        if given:
            _refuse(key, "contrastive training does not have it", "leave it out")


def _images_only(recipe: Recipe) -> None:
    augment, validation = recipe.augment, recipe.validation
    wanted = {
        "augment.crop": augment.crop != "none", "augment.flip": augment.flip != "none",
        "augment.randaugment": augment.randaugment > 0, "augment.mixup": augment.mixup > 0,
        "augment.cutmix": augment.cutmix > 0, "validation.flip": validation.flip,
        "validation.rectangles": validation.rectangles,
    }  # fmt: skip
    for key, given in wanted.items():
        if given and recipe.data.kind != "images":
            _refuse(key, f"it is for images, and data.kind is {recipe.data.kind}", "leave it out")
    if (augment.mixup or augment.cutmix) and recipe.loss != "cross_entropy":
        _refuse("augment.mixup", f"mixed labels need the loss cross_entropy, and it is {recipe.loss}", "0")
    if validation.rectangles and (recipe.data.resident or recipe.data.val == "generated"):
        _refuse("validation.rectangles", "resident and generated images are all of one shape", "false")
    if validation.rectangles and recipe.data.decoder == "nvjpeg":
        _refuse(
            "validation.rectangles", "shapes are read with the files, and nvjpeg decodes later", "pillow, torchvision"
        )
    if recipe.data.decoder == "nvjpeg" and recipe.data.resident:
        _refuse("data.decoder", "resident images are decoded once, by the CPU", "pillow, torchvision")


def _phases(recipe: Recipe) -> None:
    starts = [phase.start.amount for phase in recipe.phases]
    if starts != sorted(set(starts)) or any(start != int(start) for start in starts):
        _refuse("phases", "each starts at a whole epoch, later than the one before", 'start = "13ep"')
    if recipe.data.kind != "images" and any(phase.image_size for phase in recipe.phases):
        _refuse("phases", f"image_size is for images, and data.kind is {recipe.data.kind}", "leave it out")


def _shares(recipe: Recipe, world: int) -> None:
    for key, batch in (("batch", recipe.batch), *(("phases: batch", phase.batch) for phase in recipe.phases)):
        if batch is not None and batch % (world * recipe.accumulate):
            _refuse(
                key,
                f"{batch} samples cannot be split into {recipe.accumulate} passes of {world} processes",
                f"a multiple of {world * recipe.accumulate}",
            )
    if recipe.speed.sync_batch_norm and world == 1:
        _refuse("speed.sync_batch_norm", "there is one process: nothing to synchronise", "false, or more processes")
