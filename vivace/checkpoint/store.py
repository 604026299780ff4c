"""``Checkpoints``: saves and loads the state of a training in one folder, under the contract of docs/checkpoints.md."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from vivace.checkpoint.errors import NotSaved
from vivace.checkpoint.finding import find
from vivace.checkpoint.loading import load_tensors, load_train_state
from vivace.checkpoint.plain import to_bytes
from vivace.checkpoint.ranks import Ranks
from vivace.checkpoint.reader import causes
from vivace.checkpoint.retention import Best, clean_up, prune
from vivace.checkpoint.train_state import RandomState, TrainState
from vivace.checkpoint.writer import CarefulSavePlanner, ContractWriter, Phase, Save
from vivace.preemption.durable import first_line
from vivace.preemption.job_files import note_checkpoint
from vivace.protocol.chaos import tell_resumed

__all__ = ["Checkpoints", "OnError", "Saved"]


class OnError(Enum):
    """What a save does that the system refuses: a full disk, no permission."""

    WARN = "warn"
    """Says so loudly; the training goes on."""
    STOP = "stop"
    """Raises ``NotSaved``."""


@dataclass(frozen=True)
class Saved:
    """What became of a save. ``folder`` is None on ranks other than the first, and where nothing was saved."""

    step: int
    folder: Path | None
    seconds: float
    error: str | None = None


class Checkpoints:
    """Make it, save and load on all ranks alike, at the same places; from the main thread.

    ``keep``: so many of the last are kept, and ``best`` beside them. ``on_phase`` is called at each moment of a save.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: int = 3,
        best: Best | None = None,
        on_error: OnError = OnError.WARN,
        on_phase: Callable[[Phase], None] = lambda _phase: None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be 1 or more, and is {keep}")
        self.root = Path(os.path.realpath(folder))
        self.keep, self.best, self.on_error, self.on_phase = keep, best, on_error, on_phase
        self.ranks = Ranks()
        self._pending: Future[Saved] | None = None
        self._count = 0
        self._newest: tuple[int, float] | None = None
        self._cleaned = False
        # Alone is a way to train, not a mistake.
        warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable).*single process")

    # -- saving ------------------------------------------------------------------------------------------------------

    def save(self, state: Mapping[str, Any], progress: TrainState) -> Saved:
        """Returns when the checkpoint is complete and on disk."""
        self.wait()
        save, began = self._begin(progress), time.monotonic()
        try:
            dcp.save(dict(state), **self._options(save))
        except (Exception, CheckpointException) as error:  # DCP's is no Exception
            return self._failed(save, began, error)
        return self._succeeded(save, began)

    def save_in_background(self, state: Mapping[str, Any], progress: TrainState) -> None:
        """Returns when the state is copied to the CPU's memory; later changes do not get in.

        At most one save is under way: a second one waits for the first. Errors are told when they happen, and raised
        (``OnError.STOP``) by the next ``save``, ``save_in_background``, ``wait`` or ``close``.
        """
        self.wait()
        save, began = self._begin(progress), time.monotonic()
        future: Any = dcp.async_save(dict(state), **self._options(save))
        pending: Future[Saved] = Future()
        self._pending = pending
        written: Future[Any] = getattr(future, "upload_completion", future)
        written.add_done_callback(lambda done: self._settle(pending, save, began, done))

    def wait(self) -> Saved | None:
        """Until the save in the background is complete; None when there was none."""
        if self._pending is None:
            return None
        pending, self._pending = self._pending, None
        return pending.result()

    def _settle(self, pending: Future[Saved], save: Save, began: float, done: Future[Any]) -> None:
        """In DCP's thread, once the save is complete or has failed on all ranks."""
        try:
            error = done.exception()
            pending.set_result(
                self._succeeded(save, began) if error is None else self._failed(save, began, error)
            )  # fmt: skip
        except BaseException as raised:
            if self.ranks.is_first:
                _say(f"the checkpoint of step {save.step} failed in the background: {first_line(raised)}")
            pending.set_exception(raised)

    def close(self) -> None:
        """Before ``destroy_process_group``: waits for what is under way."""
        try:
            self.wait()
        finally:
            self.ranks.close()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _options(self, save: Save) -> dict[str, Any]:
        return {
            "storage_writer": ContractWriter(save),
            "planner": CarefulSavePlanner(),
            "process_group": self.ranks.group,
        }

    def _begin(self, progress: TrainState) -> Save:
        progress = replace(progress, random=progress.random or RandomState.capture())
        train_state = to_bytes(progress.to_plain(), "TrainState")  # now: the training changes it later
        self._count += 1
        if self.ranks.is_first and not self._cleaned:
            self._cleaned = True
            with contextlib.suppress(OSError):
                clean_up(self.root)
        return Save(
            root=self.root,
            step=progress.step,
            rank=self.ranks.rank,
            world=self.ranks.world,
            save_id=f"{self.ranks.token}-{self._count}",
            train_state=train_state,
            metrics={name: float(value) for name, value in progress.metrics.items()},
            on_phase=self.on_phase,
        )

    def _succeeded(self, save: Save, began: float) -> Saved:
        self._newest = (save.step, time.monotonic())
        if self.ranks.is_first and save.folder is not None:
            note_checkpoint(save.folder)
            try:
                prune(self.root, self.keep, self.best, save.save_id)
            except OSError as error:
                _say(f"an old checkpoint could not be deleted: {error}")
        return Saved(save.step, save.folder, time.monotonic() - began)

    def _failed(self, save: Save, began: float, error: BaseException) -> Saved:
        """The same on all ranks: DCP gives all of them all errors."""
        if self.ranks.is_first:
            shutil.rmtree(save.temporary, ignore_errors=True)
        of_system = next((cause for cause in causes(error) if isinstance(cause, OSError)), None)
        if of_system is None:  # not the system's fault: the state's, or a rank that is gone
            raise next(iter(causes(error))) from error
        why = f"{of_system.strerror or first_line(of_system)} ({of_system.filename or self.root})"
        text = f"THE CHECKPOINT OF STEP {save.step} WAS NOT SAVED: {why}. {self._what_is_at_stake()}"
        if self.on_error is OnError.STOP:
            raise NotSaved(text, of_system) from error
        if self.ranks.is_first:
            _say(f"{text} The training goes on.")
        return Saved(save.step, None, time.monotonic() - began, why)

    def _what_is_at_stake(self) -> str:
        if self._newest is None:
            return "This run has saved nothing so far."
        step, at = self._newest
        return f"The newest one is of step {step}, {(time.monotonic() - at) / 60:.1f} minutes old."

    # -- loading -----------------------------------------------------------------------------------------------------

    def load(self, state: dict[str, Any], step: int | None = None, partial: bool = False) -> TrainState | None:
        """Load the newest whole checkpoint into ``state``, or that of ``step``; None where there is none yet.

        All bytes are checked first. A damaged checkpoint is named on stderr and set aside, and the one before it is
        loaded. ``CheckpointError`` when all are damaged, or when a whole one does not fit. ``partial``: what it has
        beyond ``state`` is left out.
        """
        self.wait()
        outline = find(self.root, self.ranks, step)
        if outline is None:
            return None
        load_tensors(outline, state, self.ranks, partial)
        progress = load_train_state(outline, self.ranks)
        tell_resumed(progress.step)
        return progress


def _say(text: str) -> None:
    print(f"vivace: {text}", file=sys.stderr, flush=True)
