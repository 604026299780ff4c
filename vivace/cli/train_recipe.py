"""``vivace train RECIPE``: read it, choose between the recipe's loop and the layout engine, start the processes."""

from __future__ import annotations

from pathlib import Path

from vivace import distributed
from vivace.cli.train_layout import start_ranks, train_on_layout
from vivace.errors import UserError
from vivace.hardware.torch_needed import need_torch
from vivace.measure.folder import new_run_folder
from vivace.recipes.checking import check
from vivace.recipes.on_layouts import is_replicas, layout_settings
from vivace.recipes.practised import with_practices
from vivace.recipes.reading import read_recipe
from vivace.recipes.recipe import Recipe
from vivace.records.layout import parse_layout

__all__ = ["train_recipe"]

RECIPE = "recipe.json"


def train_recipe(
    name: str, changes: list[str], layout: str | None, ranks: int | None, checkpoints: Path | None, output: Path
) -> int:
    """The exit code of the training."""
    recipe, words = with_practices(read_recipe(name, changes))
    if checkpoints is not None:
        saved = recipe.checkpoints.model_copy(update={"folder": str(checkpoints.absolute())})
        recipe = recipe.model_copy(update={"checkpoints": saved})
    text = layout or recipe.layout
    if text is not None and not is_replicas(parse_layout(text)):
        return train_on_layout(layout_settings(recipe, text), text, ranks, output, keep_layout=False)
    here = distributed.world()
    in_job = here.launcher != "single"
    if in_job and ranks is not None:
        raise UserError("this job has started its processes already", hint="leave out --ranks")
    asked = ranks or (parse_layout(text).gpus if text is not None else None)
    world = here.world_size if in_job else asked or 1
    if text is not None and parse_layout(text).gpus != world:
        raise UserError(f"the layout {text} has {parse_layout(text).gpus} processes, and there are {world}", hint="dpN")
    check(recipe, world)
    if not here.is_master:
        return _be_a_rank(recipe, None)
    need_torch("training")
    folder = new_run_folder(output.absolute(), recipe.name)
    recipe.save(folder / RECIPE)
    if words:
        print(f"practices   {', '.join(words)}", flush=True)
    return _be_a_rank(recipe, folder) if in_job or world == 1 else start_ranks("vivace.recipes", world, folder)


def _be_a_rank(recipe: Recipe, folder: Path | None) -> int:
    from vivace.recipes.rank import run_rank

    return run_rank(recipe, folder)
