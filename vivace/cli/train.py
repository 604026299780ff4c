"""``vivace train``: a recipe (``train_recipe.py``), or one of vivace's models on any layout (``train_layout.py``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.train_layout import train_on_layout
from vivace.cli.train_recipe import train_recipe
from vivace.errors import UserError
from vivace.recipes.reading import described as described_recipe
from vivace.records.layout import LAYOUT_WORDS
from vivace.records.plan import Plan
from vivace.train.planned import settings_of
from vivace.train.settings import MODELS, TrainSettings, described, with_changes

__all__ = ["train"]


def train(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE|MODEL",
            help=f"A recipe (`vivace recipe list`), a recipe file (my.toml), or one of {', '.join(MODELS)}.",
            show_default=False,
        ),
    ] = None,
    layout: Annotated[str | None, typer.Option(help=f"{LAYOUT_WORDS}. Default: dp over all processes.")] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Processes to start on this machine. Default: as many as the layout has.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: optim.lr=3e-4; repeatable. --settings lists them.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Model, layout, batch and steps of a plan.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a file (the settings.json of a run).")] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Save to this folder, and go on from the newest checkpoint that is there.")
    ] = None,
    output: Output = DEFAULT_RUNS,
    list_settings: Annotated[bool, typer.Option("--settings", help="List all settings and end.")] = False,
) -> None:
    """Train by a recipe, or train a GPT or a ResNet on any layout.

    A recipe is a TOML file: model, data, augmentation, optimizer, schedule, durations ("37ep", "500ba", "20min"). Its
    loop runs on one process, or on replicas (dp).

    A model by its name runs on the layout engine: replicas, shards, tensor, pipeline and context parallel, in any
    mixture. The global batch, the data and the first weights do not depend on the layout: neither do the losses, up to
    rounding.

    Under srun or torchrun the processes are those of the job.

    Examples:

        vivace train cifar10-speed --set data.train=train.parquet --set data.val=test.parquet

        vivace train my.toml --set optim.lr=0.5 --set duration=20ep --checkpoints ckpt

        vivace train resnet50-imagenet --ranks 8 --set data.train=/data/imagenet/train

        vivace train gpt2-124m --layout fs4 --set data.train=train.bin      a recipe on the layout engine

        vivace train gpt --layout dp2,tp2 --set sizes.layers=8              four processes, on this machine

        srun vivace train gpt --layout fs4,tp2,pp2 --set global_batch=64 --set data.tokens=train.bin

        vivace train --plan plan.json --set data.tokens=train.bin           what `vivace plan … --save` planned

        vivace measure -- vivace train gpt --layout fs2                     where the time goes
    """
    is_recipe = what is not None and what not in MODELS
    if list_settings:
        rows = described_recipe() if is_recipe else described()
        for name, default, text in rows:
            typer.echo(f"{name:28} {default:14} {text}".rstrip())
        return
    if is_recipe:
        assert what is not None
        if plan is not None or config is not None:
            raise UserError("a recipe has its own settings", hint="leave out --plan and --config, or name a model")
        duration = [] if steps is None else [f"duration={steps}steps"]
        raise typer.Exit(train_recipe(what, [*(changes or ()), *duration], layout, ranks, checkpoints, output))
    settings, given = _start_from(what, plan, config)
    settings = with_changes(settings, changes or ())
    if checkpoints is not None:
        where = settings.checkpoints.model_copy(update={"folder": str(checkpoints.absolute())})
        settings = settings.model_copy(update={"checkpoints": where})
    settings = settings.model_copy(update={"steps": steps} if steps else {})
    raise typer.Exit(train_on_layout(settings, layout, ranks, output, keep_layout=given))


def _start_from(model: str | None, plan: Path | None, config: Path | None) -> tuple[TrainSettings, bool]:
    """The settings before any change, and whether they say the layout."""
    given = [word for word, value in (("MODEL", model), ("--plan", plan), ("--config", config)) if value is not None]
    if given not in (["MODEL"], ["--plan"], ["--config"], ["MODEL", "--config"]):
        raise UserError(
            "name a recipe, a model or a plan", hint="vivace train cifar10-speed, vivace train gpt, or --plan plan.json"
        )
    if plan is not None:
        return settings_of(Plan.load(plan)), True
    settings = TrainSettings.load(config) if config else TrainSettings()
    return settings.model_copy(update={"model": model} if model else {}), config is not None
