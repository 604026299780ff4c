"""Called once by the bootstrap, right after ``import torch``: puts every patch in place around one session."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vivace.measure.inside.comparing import compile_cache, seeds
from vivace.measure.inside.patches import (
    backwards,
    collectives,
    creations,
    debugging,
    fetches,
    loaders,
    modules,
    optimizers,
    transfers,
)
from vivace.measure.inside.session import Session
from vivace.measure.inside.steps.recorder import Recorder
from vivace.protocol.request import ProcessRequest

__all__ = ["install"]


def install(request: ProcessRequest) -> Session:
    _tell_that_torch_was_imported(request)
    compile_cache.install()
    if request.seed_offset is not None:
        seeds.install(request.seed_offset)
    recorder = Recorder()
    session = Session(request, recorder)
    training = session.training
    training.creations = creations.install()
    training.forwards = modules.install(recorder, training.first_steps)
    switch = training.workers_lines if request.lines else None
    loaders.install(recorder, training.loaders, training.creations, training.feed, training.first_steps, switch)
    if request.lines:
        fetches.install()
    training.debugging = debugging.install(recorder)
    backwards.install(recorder, session.begin, training.debugging, session.by_hand)
    optimizers.install(recorder, session)
    transfers.install(recorder)
    collectives.install(recorder)
    return session


def _tell_that_torch_was_imported(request: ProcessRequest) -> None:
    """An empty file: the parent can then tell "no torch" from "no training step"."""
    with contextlib.suppress(OSError):
        (Path(request.folder) / f"imported-{os.getpid()}").touch()
