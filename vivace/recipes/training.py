"""``Training``: the parts of a recipe's training, put together in one place, and one step. ``loop`` repeats it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from vivace import distributed
from vivace.durations import DurationUnit
from vivace.errors import UserError
from vivace.parallel.data import replicate_alone
from vivace.recipes.augmenting import Augment
from vivace.recipes.contrastive import paired
from vivace.recipes.course import Course
from vivace.recipes.evaluating import Evaluated, evaluate
from vivace.recipes.faults import Faults, total_norm
from vivace.recipes.feeding import Batch, Feed
from vivace.recipes.logs import Log
from vivace.recipes.masking import masked
from vivace.recipes.meters import Meters, flops_per_sample
from vivace.recipes.models import build_model, logits_of
from vivace.recipes.optimizing import RATE_FACTOR, Average, make_optimizer, make_rate, weights_of_evaluation
from vivace.recipes.own_code import is_own_code, load_function
from vivace.recipes.recipe import Recipe
from vivace.recipes.sources import Source, open_source
from vivace.train.models.cifar_net import CifarNet
from vivace.train.models.sync_batch_norm import synchronised

__all__ = ["Training", "build"]

Loss = Callable[[Tensor, Tensor], Tensor]
_WHITENED_BY = 2048  # images that set the first layer of cifarnet


@dataclass
class Training:
    recipe: Recipe
    device: torch.device
    course: Course
    feed: Feed
    val: Source | None
    model: nn.Module
    """As it is saved."""
    run: nn.Module
    """The same, as it is called: compiled, or with gradients averaged over ranks."""
    optimizer: torch.optim.Optimizer
    average: Average | None
    rate: Callable[[int], float]
    loss: Loss
    augment: Augment
    faults: Faults
    log: Log
    steps: int | None
    """None if a time ends the training."""
    step: int = 0
    """Steps done: also the place in the data."""
    seconds: float = 0.0
    """Trained so far, with what was before a resume."""

    def take_step(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Train on a batch: the mean loss of this rank's share, and the norm of the gradients if somebody needs it."""
        recipe, course = self.recipe, self.course
        epoch, size = course.place(self.step).epoch, course.image_size(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step) * group.get(RATE_FACTOR, 1.0)
        pieces = list(batch.parts(recipe.accumulate))
        losses = []
        for number, piece in enumerate(pieces):
            inputs, targets = self.augment(piece, self.step, number, epoch, size)
            with self._exchange(last=number + 1 == len(pieces)):
                with self.autocast():
                    loss = self.loss(logits_of(self.run(inputs)), targets) / len(pieces)
                loss.backward()
            losses.append(loss.detach())
        total = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        norm = self._clipped()
        if not self.faults.judges_steps or self.faults.accepts(total, norm, self.step + 1):  # type: ignore[arg-type]
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total, norm

    def _clipped(self) -> Tensor | None:
        if self.recipe.optim.clip_norm is not None:
            return torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optim.clip_norm)
        return total_norm(list(self.model.parameters())) if self.faults.judges_steps else None

    def _exchange(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients travel with the last pass of a step only."""
        if last or not isinstance(self.run, DistributedDataParallel):
            return contextlib.nullcontext()
        return self.run.no_sync()

    def autocast(self) -> AbstractContextManager[Any]:
        if self.recipe.speed.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def validate(self) -> Evaluated | None:
        if self.val is None:
            return None
        own = None if self.recipe.loss == "cross_entropy" else self.loss
        batches = self.feed.evaluation(self.val)
        with weights_of_evaluation(self.optimizer, self.average):
            if self.recipe.objective.name == "contrastive":
                return evaluate(
                    self.model, batches, self._views(), own, self.autocast, False, self.recipe.objective.temperature
                )
            prepare, flips = self.augment.normalise, self.recipe.validation.flip
            return evaluate(self.model, batches, prepare, own, self.autocast, flips)

    def _views(self) -> Callable[[Tensor], Tensor]:
        """Of a validation's images, in their order: the same every time."""
        draws, size = torch.Generator().manual_seed(self.recipe.seed), self.recipe.data.image_size
        return lambda images: self.augment.views(images, size, draws)

    def batches(self) -> Iterator[tuple[Batch, float]]:
        """Batches from here on, each with the seconds that it was waited for."""
        steps = self.steps if self.steps is not None else 10**12
        batches = self.feed.batches(self.step, steps)
        while True:
            began = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            yield batch, time.perf_counter() - began

    def identity(self) -> dict[str, Any]:
        """What decides the data of a step: it must not change on the way."""
        recipe = self.recipe
        return {
            "seed": recipe.seed,
            "batch": recipe.batch,
            "data.kind": recipe.data.kind,
            "data.seq_len": recipe.data.seq_len,
        }


def build(recipe: Recipe, folder: Path | None, world: distributed.World) -> Training:
    """Everything a rank needs; the process group exists if there are several."""
    device = world.device
    _set_switches(recipe)
    source, val = (masked(recipe, open_source(recipe, train=train)) for train in (True, False))
    assert source is not None, "checked: a recipe names its training data"
    if recipe.data.kind == "images" and source.classes is None:
        raise UserError("data.classes: the data do not say how many classes there are", hint="--set data.classes=10")
    tokens = recipe.data.seq_len if recipe.data.kind == "tokens" else None
    course = Course(len(source), tokens, recipe.batch, recipe.data.image_size, recipe.phases)
    steps = None if recipe.duration.unit is DurationUnit.SECONDS else course.steps_of(recipe.duration)
    feed = Feed(recipe, source, course, world, device)
    augment = Augment(recipe, source.classes, world.rank, device)
    model = build_model(recipe, source.classes, device)
    first = _first_batch(feed, augment) if isinstance(model, CifarNet) or device.type == "cuda" else None
    if isinstance(model, CifarNet) and first is not None and recipe.model.weights is None:
        model.whiten(first)
    if recipe.speed.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    flops = flops_per_sample(model, first) if first is not None and device.type == "cuda" else None
    if recipe.speed.sync_batch_norm:
        model = synchronised(model, device)
    optimizer = make_optimizer(recipe, model)
    average = Average(model, recipe.optim.ema) if recipe.optim.ema is not None else None
    faults = Faults(recipe.faults)
    log = Log(recipe, course, folder, Meters(device, recipe.speed.precision, flops), faults, steps)
    run = _as_called(recipe, model, world, device)
    rate = make_rate(recipe, course, steps)
    return Training(recipe, device, course, feed, val, model, run, optimizer, average, rate, _loss(recipe), augment,
                    faults, log, steps)  # fmt: skip


def _set_switches(recipe: Recipe) -> None:
    precise = recipe.speed.precision == "fp32"
    torch.backends.cuda.matmul.allow_tf32 = not precise
    torch.backends.cudnn.allow_tf32 = not precise
    torch.backends.cudnn.benchmark = recipe.speed.cudnn_benchmark


def _first_batch(feed: Feed, augment: Augment) -> Tensor:
    """Images as the model sees them, without augmentation."""
    batch = next(feed.batches(0, 1))
    return augment.normalise(batch.inputs[:_WHITENED_BY])


def _as_called(recipe: Recipe, model: nn.Module, world: distributed.World, device: torch.device) -> nn.Module:
    """DDP around the compiled model: as torch recommends. Names of parameters stay."""
    if recipe.speed.compile:
        _compile(model, "default" if recipe.speed.compile is True else recipe.speed.compile)
    if world.world_size == 1:
        return model
    mesh = init_device_mesh(device.type, (world.world_size,))
    return replicate_alone(model, mesh, find_unused=False, accumulates=recipe.accumulate > 1)


def _compile(model: nn.Module, mode: str) -> None:
    """In place. dynamo skips frames of torch's own files: a Sequential is compiled from a frame of ours."""
    if type(model).forward.__module__.partition(".")[0] != "torch":
        model.compile(mode=mode)
        return
    call = model._call_impl

    def whole(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    model._compiled_call_impl = torch.compile(whole, mode=mode)


def _loss(recipe: Recipe) -> Loss:
    if is_own_code(recipe.loss):
        return load_function(recipe.loss, "loss")
    if recipe.loss == "mse":
        return lambda outputs, targets: F.mse_loss(outputs.float(), targets.float())
    if recipe.loss != "cross_entropy":
        raise UserError(f"loss: there is no {recipe.loss!r}", hint="cross_entropy, mse, or FILE.py:FUNCTION")
    smoothing, temperature = recipe.optim.label_smoothing, recipe.objective.temperature
    if recipe.objective.name == "contrastive":
        return lambda outputs, targets: F.cross_entropy(*paired(outputs, temperature, all_ranks=True))

    def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.dtype == torch.long and targets.ndim > 1:  # tokens
            outputs, targets = outputs.flatten(0, -2), targets.flatten()
        return F.cross_entropy(outputs.float(), targets, label_smoothing=smoothing)

    return cross_entropy
