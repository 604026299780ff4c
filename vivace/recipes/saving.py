"""Checkpoints of a recipe's training: the newest whole one is loaded, saves come now and then, a stop comes in time.

The order of the data, the augmentation and the learning rate follow from the step, so weights, optimizer, averages, the
step and the random numbers are all that is saved; what follows is the same training, bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from vivace.checkpoint import CheckpointError, Checkpoints, NotSaved, OnError, Trained, TrainState
from vivace.durations import DurationUnit
from vivace.errors import UserError
from vivace.preemption import Preemption

if TYPE_CHECKING:
    from vivace.recipes.training import Training

__all__ = ["Saver"]


class Saver:
    """Without a folder it does nothing: a job that saves nothing must not be started again."""

    def __init__(self, training: Training) -> None:
        self._training, self._asked = training, training.recipe.checkpoints
        every = self._asked.every
        self._store: Checkpoints | None = None
        if self._asked.folder is not None:
            self._store = Checkpoints(self._asked.folder, keep=self._asked.keep, on_error=OnError(self._asked.on_error))
        minutes = every.amount / 60 if every.unit is DurationUnit.SECONDS and self._store is not None else None
        self._guard = Preemption(save_every_minutes=minutes) if self._store is not None else None

    @property
    def stopping(self) -> bool:
        """All ranks agreed to stop: the job must be started again."""
        return self._guard is not None and self._guard.stopping

    def restore(self) -> None:
        if self._store is None:
            return
        training = self._training
        try:
            progress = self._store.load(self._state())
        except CheckpointError as error:
            raise UserError(str(error), hint="--checkpoints FOLDER: another one, or one without checkpoints") from None
        if progress is None:
            return
        for key, before in progress.more["data"].items():
            if training.identity()[key] != before:
                raise UserError(
                    f"{self._asked.folder} was saved with {key} = {before}: its next step would see other data",
                    hint=f"--set {key}={before}, or --checkpoints with another folder",
                )
        training.step, training.seconds = progress.step, float(progress.more["seconds"])
        progress.restore_random()
        if self._store.ranks.is_first:
            print(f"goes on from step {progress.step}, of {self._asked.folder}", flush=True)

    def _state(self) -> dict[str, Any]:
        training = self._training
        state: dict[str, Any] = {"trained": Trained(training.model, training.optimizer)}
        return state if training.average is None else {**state, "average": training.average}

    def after_step(self, last: bool) -> bool:
        """Saves if it is time; True ends the training here."""
        training, every = self._training, self._asked.every
        if self._guard is None:
            return False
        due = self._guard.should_save()
        if every.unit is not DurationUnit.SECONDS:
            due = due or training.course.is_due(every, training.step)
        if due or last:
            training.log.write(training.step, training.rate(training.step - 1))  # ends here if a loss is no number
            with training.log.pause():
                self._save(in_background=self._asked.background and not self._guard.stopping)
        return self._guard.stopping

    def _save(self, in_background: bool) -> None:
        assert self._store is not None
        training = self._training
        metrics = {}
        if training.log.validations:
            found = training.log.validations[-1][1]
            metrics = {"val_loss": found.val_loss} | (
                {} if found.val_accuracy is None else {"val_accuracy": found.val_accuracy}
            )
        more = {"data": training.identity(), "seconds": training.seconds}
        samples = training.course.samples_before(training.step)
        progress = TrainState(training.step, int(training.course.epoch(training.step)), samples, metrics, more=more)
        try:
            (self._store.save_in_background if in_background else self._store.save)(self._state(), progress)
        except NotSaved as error:
            raise UserError(str(error), hint="make room, or --set checkpoints.on_error=warn to train on") from None

    def close(self) -> None:
        try:
            if self._store is not None:
                self._store.close()
        except NotSaved as error:
            raise UserError(str(error), hint="make room, or --set checkpoints.on_error=warn to train on") from None
        if self._guard is not None and not self._guard.stopping:
            self._guard.close()

    def leave(self) -> NoReturn:
        """After a stop: the exit code that has the job started again."""
        assert self._guard is not None
        self._guard.requeue_and_exit()
