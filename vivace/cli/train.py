"""``vivace train MODEL``: parse, start the processes that the layout needs (or be one of them), pass on exit codes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vivace import distributed
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.errors import ExitCode, UserError
from vivace.hardware.torch_needed import need_torch
from vivace.launch.local import torchrun_words
from vivace.measure.folder import new_run_folder
from vivace.records.layout import LAYOUT_WORDS, Layout, parse_layout
from vivace.records.plan import Plan
from vivace.train.planned import settings_of
from vivace.train.settings import MODELS, TrainSettings, check, described, with_changes

__all__ = ["train"]

SETTINGS = "settings.json"


def train(
    model: Annotated[str | None, typer.Argument(help=f"One of {', '.join(MODELS)}.", show_default=False)] = None,
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
    """Train a GPT or a ResNet on any layout: replicas, shards, tensor, pipeline and context parallel, in any mixture.

    Under srun or torchrun the processes are those of the job. The global batch, the data and the first weights do not
    depend on the layout: neither do the losses, up to rounding.

    Examples:

        vivace train gpt --steps 50                                   one process

        vivace train gpt --layout dp2,tp2 --set sizes.layers=8        four processes, on this machine

        srun vivace train gpt --layout fs4,tp2,pp2 --set global_batch=64 --set data.tokens=train.bin

        vivace train --plan plan.json --set data.tokens=train.bin     what `vivace plan … --save` planned

        vivace train resnet50 --layout dp4 --set engine.sync_batch_norm=true

        vivace train gpt --checkpoints ckpt --set checkpoints.every_steps=50   again after a crash, any layout

        vivace measure -- vivace train gpt --layout fs2               where the time goes
    """
    if list_settings:
        for name, default, text in described():
            typer.echo(f"{name:28} {default:14} {text}".rstrip())
        return
    settings, given = _start_from(model, plan, config)
    settings = with_changes(settings, changes or ())
    if checkpoints is not None:
        where = settings.checkpoints.model_copy(update={"folder": str(checkpoints.absolute())})
        settings = settings.model_copy(update={"checkpoints": where})
    here = distributed.world()
    in_job = here.launcher != "single"
    if in_job and ranks is not None:
        raise UserError("this job has started its processes already", hint="leave out --ranks")
    world = here.world_size if in_job else ranks
    settings = settings.model_copy(update={"steps": steps} if steps else {})
    if layout is not None or not given:
        settings = settings.model_copy(update={"layout": _layout(layout, world or 1, settings.global_batch)})
    world = world or settings.layout.gpus
    if not here.is_master:
        raise typer.Exit(_be_a_rank(settings, None))
    check(settings, world)
    need_torch("training")
    folder = new_run_folder(output.absolute(), settings.model)
    settings.save(folder / SETTINGS)
    raise typer.Exit(_be_a_rank(settings, folder) if in_job or world == 1 else _start(world, folder))


def _start_from(model: str | None, plan: Path | None, config: Path | None) -> tuple[TrainSettings, bool]:
    """The settings before any change, and whether they say the layout."""
    given = [word for word, value in (("MODEL", model), ("--plan", plan), ("--config", config)) if value is not None]
    if given not in (["MODEL"], ["--plan"], ["--config"], ["MODEL", "--config"]):
        raise UserError("name a model, or a plan", hint="vivace train gpt, or vivace train --plan plan.json")
    if plan is not None:
        return settings_of(Plan.load(plan)), True
    settings = TrainSettings.load(config) if config else TrainSettings()
    return settings.model_copy(update={"model": model} if model else {}), config is not None


def _layout(text: str | None, world: int, global_batch: int) -> Layout:
    """As given. Without a micro-batch: the whole share of a rank, or as many as fill a pipeline twice."""
    layout = Layout(data=world) if text is None else parse_layout(text)
    if text is not None and any(word.strip().startswith("mb") for word in text.split(",")):
        return layout
    share = max(1, global_batch // layout.data)
    count = (
        1 if layout.pipeline == 1 else next((n for n in (2 * layout.stages, layout.stages) if share % n == 0), share)
    )
    return replace(layout, micro_batch=share // count)


def _be_a_rank(settings: TrainSettings, folder: Path | None) -> int:
    from vivace.train.rank import run_rank

    return run_rank(settings, folder)


def _start(world: int, folder: Path) -> int:
    words = torchrun_words([sys.executable, "-m", "vivace.train", str(folder)], world)
    process = subprocess.Popen(words)
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the ranks have it too, from the terminal: let them end
        process.wait()
        return int(ExitCode.INTERRUPTED)
    return code if code >= 0 else 128 - code
