"""One of vivace's models on the layout engine: start the processes that the layout needs, or be one of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from vivace import distributed
from vivace.errors import ExitCode, UserError
from vivace.hardware.torch_needed import need_torch
from vivace.launch.local import torchrun_words
from vivace.measure.folder import new_run_folder
from vivace.records.layout import Layout, parse_layout
from vivace.train.settings import TrainSettings, check

__all__ = ["start_ranks", "train_on_layout"]

SETTINGS = "settings.json"


def train_on_layout(
    settings: TrainSettings, layout: str | None, ranks: int | None, output: Path, keep_layout: bool
) -> int:
    """The exit code. ``keep_layout``: the settings say the layout, unless ``layout`` does."""
    here = distributed.world()
    in_job = here.launcher != "single"
    if in_job and ranks is not None:
        raise UserError("this job has started its processes already", hint="leave out --ranks")
    world = here.world_size if in_job else ranks
    if layout is not None or not keep_layout:
        settings = settings.model_copy(update={"layout": _layout(layout, world or 1, settings.global_batch)})
    world = world or settings.layout.gpus
    if not here.is_master:
        return _be_a_rank(settings, None)
    check(settings, world)
    need_torch("training")
    folder = new_run_folder(output.absolute(), settings.model)
    settings.save(folder / SETTINGS)
    return _be_a_rank(settings, folder) if in_job or world == 1 else start_ranks("vivace.train", world, folder)


def start_ranks(module: str, world: int, folder: Path) -> int:
    words = torchrun_words([sys.executable, "-m", module, str(folder)], world)
    process = subprocess.Popen(words)
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the ranks have it too, from the terminal: let them end
        process.wait()
        return int(ExitCode.INTERRUPTED)
    return code if code >= 0 else 128 - code


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
