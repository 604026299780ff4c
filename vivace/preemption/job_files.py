"""Two small files beside the job's logs, through which vivace's job script and rank 0 understand each other.

``JOB.told``: the script writes it when Slurm warns that the job must stop soon; rank 0 looks at it.
``JOB.state``: rank 0 writes what it is doing (``JobWord``), and below it the path of the last checkpoint.

Why not signals and exit codes alone: torchrun, srun or a shell stands between Slurm and the ranks. A signal to all of
them kills those that do not listen, and torchrun makes its own exit code of ours. The script removes both files when
a life of the job begins, so that they are about the present life.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vivace.protocol.rank import RANK_VARIABLE

__all__ = ["VARIABLE", "JobFiles", "JobState", "JobWord", "is_first_rank", "note_checkpoint", "read_state"]

VARIABLE = "VIVACE_JOB_FILES"  # set by the job script: the path of both files, without their endings


class JobWord(Enum):
    LISTENING = "listening"
    """Rank 0 looks at ``JOB.told``: no signal needed."""
    SAVED = "saved"
    """The ranks saved and stopped: start the job again."""
    DONE = "done"
    """The training is over: nothing is left to interrupt."""


@dataclass(frozen=True)
class JobState:
    word: JobWord
    checkpoint: str | None = None


class JobFiles:
    """Rank 0's side. What cannot be written is not said: nothing here may stop a training."""

    def __init__(self, base: str) -> None:
        self._told, self._state = Path(f"{base}.told"), Path(f"{base}.state")

    @classmethod
    def of_this_job(cls, environment: Mapping[str, str] = os.environ) -> JobFiles | None:
        """None outside a job of vivace's, and on all ranks but the first."""
        base = environment.get(VARIABLE)
        return cls(base) if base and is_first_rank(environment) else None

    def told_to_stop(self) -> bool:
        """Also when this life has saved already: then torchrun started the ranks again, and not Slurm the job."""
        state = read_state(self._state)
        return self._told.exists() or (state is not None and state.word is JobWord.SAVED)

    def say(self, word: JobWord | None = None, checkpoint: str | None = None) -> None:
        """Change the word, the checkpoint, or both; what is not given stays."""
        before = read_state(self._state)
        if before is not None:
            keeps = word is None or (before.word is JobWord.SAVED and word is JobWord.LISTENING)
            word, checkpoint = before.word if keeps else word, checkpoint or before.checkpoint
        if word is not None:
            self._write(f"{word.value}\n{checkpoint or ''}\n")

    def _write(self, text: str) -> None:
        """In one piece; on a full disk over the old words, which needs no room: a later word is never longer."""
        temporary = self._state.with_name(f"{self._state.name}.{os.getpid()}")
        try:
            temporary.write_text(text)
            os.replace(temporary, self._state)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            with contextlib.suppress(OSError), self._state.open("r+") as file:
                file.write(text)
                file.truncate()


def read_state(file: Path) -> JobState | None:
    """What rank 0 said; None when it said nothing."""
    try:
        lines = file.read_text().split("\n")
        return JobState(JobWord(lines[0]), (lines[1] if len(lines) > 1 else "") or None)
    except (OSError, ValueError):
        return None


def note_checkpoint(path: Path) -> None:
    """For ``vivace status``: where the last checkpoint of this job is."""
    files = JobFiles.of_this_job()
    if files is not None:
        files.say(checkpoint=str(path))


def is_first_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Before torch.distributed is there. vivace's own variable first: it hides the others from a script that it splits.
    Under srun torchrun all ranks of a node have torchrun's SLURM_PROCID."""
    names = (RANK_VARIABLE, "RANK", "SLURM_PROCID")
    return next((environment[name] for name in names if environment.get(name)), "0") == "0"
