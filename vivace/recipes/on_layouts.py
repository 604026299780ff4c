"""A recipe on the layout engine: shards, tensor, pipeline and context parallel, for vivace's own models.

The engine (``vivace.train``) has a loop of its own, with fewer methods. What a recipe asks for and the engine does not
have is refused by its key. Needs no torch.
"""

from __future__ import annotations

from typing import Any

from vivace.durations import DurationUnit
from vivace.errors import UserError
from vivace.recipes.checking import check
from vivace.recipes.recipe import Recipe
from vivace.records.layout import Layout
from vivace.train.settings import MODELS, TrainSettings

__all__ = ["is_replicas", "layout_settings"]


def is_replicas(layout: Layout) -> bool:
    """Replicas and nothing else: the recipe's own loop runs them."""
    return layout.zero == 0 and layout.model_parallel == 1 and layout.recompute == "none"


def layout_settings(recipe: Recipe, layout: str) -> TrainSettings:
    check(recipe)
    for key, (value, allowed) in _limits(recipe).items():
        if value not in allowed:
            raise UserError(
                f"layout: {layout} needs the layout engine, and it has no {key} = {value}",
                hint=f"{key} = {' or '.join(str(each) for each in allowed)}, or a layout of replicas (dp)",
            )
    data, optim = recipe.data, recipe.optim
    fields: dict[str, Any] = {
        "model": recipe.model.name,
        "sizes": recipe.model.sizes.model_dump(),
        "steps": _steps(recipe, "duration", recipe.duration.unit, recipe.duration.amount),
        "global_batch": recipe.batch,
        "seed": recipe.seed,
        "data": {
            "tokens": None if data.train == "generated" else data.train,
            "seq_len": data.seq_len,
            "image_size": data.image_size,
            "classes": data.classes or 10,
            "seed": recipe.seed,
        },
        "optim": {
            "name": optim.name,
            "lr": optim.lr,
            "weight_decay": optim.weight_decay,
            "clip_norm": optim.clip_norm,
            "decay": "cosine" if recipe.schedule.name == "cosine" else "none",
            "final_share": recipe.schedule.options.get("last", 0.0),
            **({"betas": optim.betas} if optim.betas else {}),
            **({"eps": optim.eps} if optim.eps else {}),
            **({"momentum": optim.momentum} if optim.momentum is not None else {}),
        },
        "engine": {
            "precision": "bf16" if recipe.speed.precision == "bf16" else "fp32",
            "compile": bool(recipe.speed.compile),
            "sync_batch_norm": recipe.speed.sync_batch_norm,
        },
        "checkpoints": {
            "folder": recipe.checkpoints.folder,
            "keep": recipe.checkpoints.keep,
            "background": recipe.checkpoints.background,
            "on_error": recipe.checkpoints.on_error,
        },
    }
    if recipe.schedule.warmup is not None:
        warmup = recipe.schedule.warmup
        fields["optim"]["warmup_steps"] = _steps(recipe, "schedule.warmup", warmup.unit, warmup.amount)
    return TrainSettings.model_validate(fields)


def _limits(recipe: Recipe) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the engine has, by key."""
    tokens, name = recipe.model.name == "gpt", recipe.data.train or ""
    return {
        "model.name": (recipe.model.name, MODELS),
        "model.mup_base_width": (recipe.model.mup_base_width, (None,)),
        "model.weights": (recipe.model.weights, (None,)),
        "model.sizes.causal": (recipe.model.sizes.causal, (True,)),
        "objective.name": (recipe.objective.name, ("targets",)),
        "model.stem": (recipe.model.stem, ("imagenet",)),
        "data.train": (
            name,
            ("generated", name) if tokens and not name.endswith((".txt", ".npy", ".py")) else ("generated",),
        ),
        "optim.name": (recipe.optim.name, ("adamw", "sgd")),
        "optim.nesterov": (recipe.optim.nesterov, (None, False)),
        "optim.ema": (recipe.optim.ema, (None,)),
        "optim.label_smoothing": (recipe.optim.label_smoothing, (0.0,)),
        "optim.decay_vectors": (recipe.optim.decay_vectors, (False,)),
        "schedule.name": (recipe.schedule.name, ("constant", "cosine")),
        "schedule.over": (recipe.schedule.over, (None,)),
        "augment.crop": (recipe.augment.crop, ("none",)),
        "augment.flip": (recipe.augment.flip, ("none",)),
        "augment.randaugment": (recipe.augment.randaugment, (0,)),
        "augment.mixup": (recipe.augment.mixup, (0.0,)),
        "augment.cutmix": (recipe.augment.cutmix, (0.0,)),
        "faults.nan": (recipe.faults.nan, ("stop",)),
        "faults.spike": (recipe.faults.spike, ("ignore",)),
        "loss": (recipe.loss, ("cross_entropy",)),
        "phases": (recipe.phases, ((),)),
    }


def _steps(recipe: Recipe, key: str, unit: DurationUnit, amount: float) -> int:
    """The engine does not look at the data first, so an epoch has no length here."""
    per_step = {
        DurationUnit.STEPS: 1.0,
        DurationUnit.SAMPLES: float(recipe.batch),
        DurationUnit.TOKENS: float(recipe.batch * recipe.data.seq_len),
    }
    if unit not in per_step:
        raise UserError(f"{key}: the layout engine counts steps", hint=f"--set {key}=1000ba (or samples, tok)")
    return max(1, round(amount / per_step[unit]))
