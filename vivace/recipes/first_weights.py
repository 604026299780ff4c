"""Weights that a training begins with: those of another training's checkpoint, or of a safetensors file."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vivace.checkpoint import CheckpointError, Trained
from vivace.checkpoint.finding import find
from vivace.checkpoint.loading import load_tensors
from vivace.checkpoint.ranks import Ranks
from vivace.checkpoint.safetensors import load_safetensors
from vivace.errors import UserError

__all__ = ["load_weights"]

_HINT = "model.weights = a folder of checkpoints, or a file .safetensors, of a model of the same sizes"


def load_weights(model: nn.Module, name: str) -> None:
    """Into the model, all of them: names and shapes must be the same."""
    path = Path(name)
    try:
        if path.is_dir():
            _from_checkpoint(model, path)
        else:
            model.load_state_dict(load_safetensors(path))
    except (CheckpointError, OSError, RuntimeError) as error:
        raise UserError(f"model.weights: {name} does not fit: {str(error)[:300]}", hint=_HINT) from None


def _from_checkpoint(model: nn.Module, folder: Path) -> None:
    ranks = Ranks()
    try:
        newest = find(folder, ranks)
        if newest is None:
            raise UserError(f"model.weights: {folder} has no checkpoint", hint=_HINT)
        load_tensors(newest, {"trained": Trained(model)}, ranks, partial=True)
    finally:
        ranks.close()
