"""One rank from its start to its exit code: what a user must know is said once, by rank 0."""

from __future__ import annotations

import sys
from pathlib import Path

from vivace import distributed
from vivace.errors import ExitCode, UserError
from vivace.train.settings import TrainSettings

__all__ = ["run_rank"]


def run_rank(settings: TrainSettings, folder: Path | None) -> int:
    """``folder`` is for rank 0's files. Imports torch."""
    from vivace.train.loop import train
    from vivace.train.saving import TrainCheckpoints

    main = distributed.world().is_master
    checkpoints = TrainCheckpoints(settings) if settings.checkpoints.folder is not None else None
    try:
        trained = train(settings, folder if main else None, checkpoints)
    except UserError as error:  # every rank has met it
        if main:
            print(f"vivace: {error}", file=sys.stderr, flush=True)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    if checkpoints is not None and checkpoints.stopping:
        checkpoints.leave()
    if main:
        figures = f", {trained.step_ms:.1f} ms per step" if trained.step_ms else ""
        where = f"; metrics in {folder}" if folder else ""
        print(f"trained {trained.steps} steps, loss {trained.final_loss:.4f}{figures}{where}", flush=True)
    del checkpoints  # which hold the model
    distributed.destroy_process_group()
    return 0
