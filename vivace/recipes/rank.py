"""One rank of a recipe's training, from its start to its exit code. The first rank speaks for all."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from vivace import distributed
from vivace.errors import ExitCode, UserError
from vivace.recipes.recipe import Recipe

__all__ = ["run_rank"]

_TIMEOUT = timedelta(minutes=30)  # of one exchange


def run_rank(recipe: Recipe, folder: Path | None) -> int:
    """``folder`` is for the first rank's files. Imports torch."""
    from vivace.recipes.loop import train
    from vivace.recipes.sources import DataError

    world = distributed.world()
    if world.world_size > 1:
        distributed.init_process_group(timeout=_TIMEOUT)
    try:
        record, saver = train(recipe, folder if world.is_master else None, world)
    except UserError as error:  # every rank has met it, unless it comes from one rank's data
        if world.is_master or isinstance(error, DataError):
            print(f"vivace: {error}", file=sys.stderr, flush=True)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    if saver.stopping:
        saver.leave()
    if world.is_master:
        loss = "" if record.final_loss is None else f", loss {record.final_loss:.4f}"
        figures = f", {record.samples_per_s:,.1f} samples/s" if record.samples_per_s else ""
        print(f"trained {record.steps} steps in {record.seconds:.1f} s{loss}{figures}; see {folder}", flush=True)
    del saver  # which holds the model
    distributed.destroy_process_group()
    return 0
