"""From a checkpoint that has been verified into the memory of the ranks, however many there are now."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from vivace.checkpoint.errors import CheckpointError, Damaged, Refused, RefusedError
from vivace.checkpoint.names import INDEX, state_name
from vivace.checkpoint.plain import from_bytes
from vivace.checkpoint.ranks import Ranks
from vivace.checkpoint.reader import CarefulPlanner, CheckedReader, causes
from vivace.checkpoint.train_state import TrainState
from vivace.checkpoint.unpickling import read_index
from vivace.checkpoint.verify import Outline

__all__ = ["load_tensors", "load_train_state"]


def load_tensors(outline: Outline, state: dict[str, Any], ranks: Ranks, partial: bool = False) -> None:
    """Into ``state``, in place. Raises ``RefusedError``, or ``CheckpointError`` for what no check foresaw."""
    folder = outline.folder
    try:
        metadata = read_index(folder / INDEX, outline.index, outline.sizes)
    except Damaged as error:  # its sum is right: somebody wrote it so
        raise RefusedError(Refused.UNSAFE, f"{folder}: {error}", (folder,)) from error
    try:
        dcp.load(
            state,
            storage_reader=CheckedReader(folder, metadata),
            planner=CarefulPlanner(folder, partial),
            process_group=ranks.group,
        )
    except (Exception, CheckpointException) as error:  # DCP's is no Exception
        for cause in causes(error):
            if isinstance(cause, CheckpointError):
                raise cause from error
        raise


def load_train_state(outline: Outline, ranks: Ranks) -> TrainState:
    """This rank's own, where as many ranks saved; else the first one's, without its random numbers."""
    saved_world = outline.complete.world_size
    same = saved_world == ranks.world
    path = outline.folder / state_name(ranks.rank if same else 0)
    state = TrainState.from_plain(_plain(path), saved_world)
    if same:
        return state
    state.random = None
    if ranks.is_first:
        text = f"saved by {saved_world} ranks, loaded by {ranks.world}: random numbers are not those of the saved run"
        print(f"vivace: {outline.folder} was {text}", file=sys.stderr, flush=True)
    return state


def _plain(path: Path) -> dict[str, Any]:
    try:
        return from_bytes(path.read_bytes())
    except pickle.UnpicklingError as error:
        text = f"{path} holds more than tensors and plain values: it is not opened"
        raise RefusedError(Refused.UNSAFE, text, (path,)) from error
