"""One vivace a rank (``srun vivace measure -- python train.py``): they share one folder, and the first one tells.

Each peer leaves ``peer-R.json`` when its command has ended; the first waits for those and merges what all ranks saw.
They stay: by its own file a peer knows that it has measured here before. A killed one is waited for ``WAIT_S`` long.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.files import write_text_atomically

__all__ = ["Peers", "find_peers", "refuse_peers"]

WAIT_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Peers:
    """This process's place among the tasks of a Slurm step, and the step's own name (``1234.0``)."""

    rank: int
    count: int
    step: str

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def log_suffix(self) -> str:
        return "" if self.is_first else f"-{self.rank}"

    @property
    def end_file(self) -> str:
        return f"peer-{self.rank}.json"

    def tell_the_end(self, folder: Path, exit_code: int) -> None:
        write_text_atomically(folder / self.end_file, json.dumps({"exit_code": exit_code}))

    def wait_for_all(self, folder: Path) -> int:
        """How many of them have ended, and told so."""
        until = time.monotonic() + WAIT_S
        while (ended := len(list(folder.glob("peer-*.json")))) < self.count and time.monotonic() < until:
            time.sleep(_POLL_S)
        return ended


def find_peers(environment: Mapping[str, str] = os.environ) -> Peers | None:
    """The tasks that srun started beside this one; None in a batch script, at a prompt, or alone in a step.

    >>> find_peers({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"})
    Peers(rank=3, count=4, step='12.0')
    """
    names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID")
    values = [environment.get(name, "") for name in names]
    if not all(value.isdecimal() for value in values) or int(values[1]) < 2:
        return None
    life = environment.get("SLURM_RESTART_COUNT", "0")
    return Peers(int(values[0]), int(values[1]), f"{values[2]}.{values[3]}" + (f".{life}" if life != "0" else ""))


def refuse_peers(what: str) -> None:
    """For commands that start the training several times: two of them could not agree on what to start next."""
    if (peers := find_peers()) is not None:
        raise UserError(
            f"srun started {peers.count} times vivace {what}, where one must start all ranks",
            hint=f"vivace {what} -- srun python train.py (with `vivace submit`: --once)",
        )
