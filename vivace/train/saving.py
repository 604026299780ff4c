"""The checkpoints of ``vivace train``: restores before the first step, saves now and then, stops when the job must.

``loop.train`` calls it through its ``Checkpoints`` protocol. What is saved does not depend on the layout: a training
may go on with other ranks. The data, the schedule and the first weights are functions of the step and the settings, so
a training that goes on with the same layout is the same training, bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from vivace.checkpoint import CheckpointError, Checkpoints, NotSaved, OnError, TrainState
from vivace.errors import UserError
from vivace.preemption import Preemption
from vivace.train.settings import TrainSettings

if TYPE_CHECKING:
    from vivace.train.training import Training

__all__ = ["TrainCheckpoints"]

_KEY = "training"


class TrainCheckpoints:
    def __init__(self, settings: TrainSettings) -> None:
        assert settings.checkpoints.folder is not None
        self._settings = settings
        self._store: Checkpoints | None = None
        self._guard: Preemption | None = None

    @property
    def stopping(self) -> bool:
        """The ranks agreed to stop: the job must be started again."""
        return self._guard is not None and self._guard.stopping

    def restore(self, training: Training) -> None:
        save = self._settings.checkpoints
        assert save.folder is not None
        self._store = Checkpoints(save.folder, keep=save.keep, on_error=OnError(save.on_error))
        self._guard = Preemption(save_every_steps=save.every_steps, save_every_minutes=save.every_minutes)
        try:
            progress = self._store.load({_KEY: training})
        except CheckpointError as error:
            raise UserError(str(error), hint="--checkpoints FOLDER: another one, or one without checkpoints") from None
        if progress is None:
            return
        self._compare(progress)
        if self._store.ranks.is_first:
            print(f"goes on from step {progress.step}, of {save.folder}", flush=True)

    def _compare(self, progress: TrainState) -> None:
        """What decides the data of a step must not change on the way."""
        now = self._data()
        for name, before in progress.more.items():
            if now.get(name) != before:
                raise UserError(
                    f"{self._settings.checkpoints.folder} was saved with {name}={before}, not {now.get(name)}: "
                    "its next step would see other data",
                    hint=f"--set {name}={before}, or --checkpoints with another folder",
                )

    def _data(self) -> dict[str, int]:
        settings = self._settings
        return {
            "seed": settings.seed,
            "global_batch": settings.global_batch,
            "data.seed": settings.data.seed,
            "data.seq_len": settings.data.seq_len,
        }

    def after_step(self, training: Training) -> bool:
        assert self._store is not None
        assert self._guard is not None
        due = self._guard.should_save()
        if due or training.step == self._settings.steps:
            progress = TrainState(
                training.step, samples=training.step * self._settings.global_batch, more=dict(self._data())
            )
            in_background = self._settings.checkpoints.background and not self._guard.stopping
            with _told_to_the_user():
                (self._store.save_in_background if in_background else self._store.save)({_KEY: training}, progress)
        return self._guard.stopping

    def close(self) -> None:
        assert self._store is not None
        assert self._guard is not None
        with _told_to_the_user():
            self._store.close()
        if not self._guard.stopping:
            self._guard.close()

    def leave(self) -> NoReturn:
        """After a stop: the exit code that has the job started again."""
        assert self._guard is not None
        self._guard.requeue_and_exit()


@contextlib.contextmanager
def _told_to_the_user() -> Iterator[None]:
    """``checkpoints.on_error=stop``, on all ranks alike."""
    try:
        yield
    except NotSaved as error:
        raise UserError(str(error), hint="make room, or --set checkpoints.on_error=warn to train on") from None
