"""Checkpoints that cannot lie, on ``torch.distributed.checkpoint``, for any training loop::

    checkpoints = Checkpoints("checkpoints", keep=3)             # on every rank, if there are several
    state = {"trained": Trained(model, optimizer)}
    progress = checkpoints.load(state) or TrainState()           # the newest whole one, every byte checked
    progress.restore_random()
    for step in range(progress.step, last_step):
        ...
        if (step + 1) % 100 == 0:
            checkpoints.save_in_background(state, TrainState(step + 1, schedule=scheduler.state_dict()))
    checkpoints.close()

Runs in the user's training process: standard library and torch only, Python 3.9. docs/checkpoints.md has the contract.

``store`` is what a training uses; ``writer`` and ``reader`` keep DCP to the contract; ``scan``, ``verify`` and
``finding`` look for the newest whole one; ``retention`` deletes; ``unpickling`` reads DCP's index safely.
"""

from __future__ import annotations

from vivace.checkpoint.errors import CheckpointError, Damage, DamageKind, NotSaved, Refused, RefusedError
from vivace.checkpoint.retention import Best, Mode
from vivace.checkpoint.store import Checkpoints, OnError, Saved
from vivace.checkpoint.train_state import RandomState, TrainState
from vivace.checkpoint.trained import Trained
from vivace.checkpoint.writer import Phase

__all__ = [
    "Best", "CheckpointError", "Checkpoints", "Damage", "DamageKind", "Mode", "NotSaved", "OnError", "Phase",
    "RandomState", "Refused", "RefusedError", "Saved", "TrainState", "Trained",
]  # fmt: skip
