"""The loop of ``vivace train RECIPE``, from top to bottom: build, restore, steps, lines, validation, checkpoints."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from vivace import distributed
from vivace.checkpoint.safetensors import save_safetensors
from vivace.errors import UserError
from vivace.recipes.optimizing import weights_of_evaluation
from vivace.recipes.recipe import Recipe
from vivace.recipes.saving import Saver
from vivace.recipes.sources import DataError
from vivace.recipes.training import Training, build
from vivace.records.recipe_run import RecipeRun
from vivace.train.models.lora import merged_state
from vivace.train.settings import WatchSettings
from vivace.train.watch import Watch

__all__ = ["MERGED", "export", "steps", "train"]

RECORD = "trained.json"
MERGED = "merged.safetensors"
_SKIPPED = "skipped.txt"


def train(recipe: Recipe, folder: Path | None, world: distributed.World) -> tuple[RecipeRun, Saver]:
    """Train to the end, in this rank. ``folder`` is the first rank's, for what is written; None elsewhere."""
    training = build(recipe, folder, world)
    saver = Saver(training)
    saver.restore()
    try:
        with Watch(WatchSettings()) if world.world_size > 1 else contextlib.nullcontext() as watch:
            for step in steps(training, saver):
                if watch is not None:
                    watch.step(step)
    except DataError:
        raise  # the other ranks know nothing of it: nothing can be finished together
    except UserError:
        saver.close()  # what is being written is finished
        raise
    finally:
        _note_skipped(training, folder)
        training.log.close()
    saver.close()
    if folder is not None and not saver.stopping:
        export(training, folder)
    return _record(training, folder, world), saver


def steps(training: Training, saver: Saver) -> Iterator[int]:
    """The steps from where the training stands to its end; yields the number of steps done after each."""
    recipe, log, course = training.recipe, training.log, training.course
    began = time.perf_counter() - training.seconds
    for batch, waited_s in training.batches():
        log.note(*training.take_step(batch), waited_s)
        training.seconds = time.perf_counter() - began
        last = training.step == training.steps
        if last or course.is_due(recipe.log.every, training.step):
            log.write(training.step, training.rate(training.step - 1))
            last = last or _time_is_up(training)
        if last or course.is_due(recipe.validation.every, training.step):
            with log.pause():
                if (found := training.validate()) is not None:
                    log.validated(training.step, found)
        if saver.after_step(last) or last:
            return
        yield training.step


def export(training: Training, folder: Path) -> None:
    """After LoRA: a plain model with the additions in its weights, for ``model.weights``."""
    if training.recipe.model.lora_rank is not None:
        with weights_of_evaluation(training.optimizer, training.average):
            save_safetensors(merged_state(training.model), folder / MERGED)


def _time_is_up(training: Training) -> bool:
    """For a duration such as 20min; looked at with each line. The first rank's clock decides for all."""
    limit = training.recipe.duration.seconds
    if limit is None:
        return False
    over = torch.tensor(float(training.seconds >= limit), device=training.device)
    if dist.is_initialized():
        dist.broadcast(over, 0)
    return bool(over)


def _note_skipped(training: Training, folder: Path | None) -> None:
    messages = training.feed.skipped.messages
    if messages and folder is not None:
        (folder / _SKIPPED).write_text("".join(f"{message}\n" for message in messages), encoding="utf-8")


def _record(training: Training, folder: Path | None, world: distributed.World) -> RecipeRun:
    log, recipe = training.log, training.recipe
    settled = log.settled_step_ms()
    quarters = statistics.quantiles(settled, n=4) if len(settled) > 1 else None
    per_s = [line.samples_per_s for line in log.lines[1:]]
    last = log.validations[-1][1] if log.validations else None
    record = RecipeRun(
        recipe=recipe.name,
        model=recipe.model.name,
        processes=world.world_size,
        device=training.device.type,
        parameters=sum(each.numel() for each in training.model.parameters()),
        steps=training.step,
        epochs=training.course.epoch(training.step),
        samples=training.course.samples_before(training.step),
        seconds=training.seconds,
        final_loss=log.lines[-1].loss if log.lines else None,
        val_loss=last.val_loss if last else None,
        val_accuracy=last.val_accuracy if last else None,
        step_ms=statistics.median(settled) if settled else None,
        step_ms_low=quarters[0] if quarters else None,
        step_ms_high=quarters[2] if quarters else None,
        samples_per_s=statistics.median(per_s) if per_s else None,
        mfu=log.lines[-1].mfu if log.lines else None,
        energy_j=log.lines[-1].energy_j if log.lines else None,
        skipped_images=len(training.feed.skipped.messages),
        skipped_steps=training.faults.skipped,
        spikes=training.faults.spikes,
    )
    if folder is not None:
        record.save(folder / RECORD)
    return record
