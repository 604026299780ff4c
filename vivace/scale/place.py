"""Which rank this process is. Said by vivace's launcher in a variable of its own; the script itself sees no rank."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass

__all__ = ["SCALE_VARIABLE", "ScalePlace"]

SCALE_VARIABLE = "VIVACE_SCALE"


@dataclass(frozen=True)
class ScalePlace:
    """``meet`` is where the ranks find each other: ``file:FOLDER`` on one machine, ``tcp:HOST:PORT`` over several."""

    rank: int
    world: int
    meet: str
    local_rank: int = 0
    own_gpu: bool = False
    """Whether this rank has a GPU of its own: NCCL needs one."""
    seed: int = 0
    """For scripts that leave it to chance: drawn once, the same on every rank."""
    folder: str = ""
    """The run's: what vivace's own code tells there is no file of the script."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def take(cls, environment: MutableMapping[str, str] = os.environ) -> ScalePlace | None:
        """None: this process is not one of several. Taken out of the environment: a process that this one starts (a
        loader's worker, a helper) is not a rank."""
        text = environment.pop(SCALE_VARIABLE, None)
        return cls(**json.loads(text)) if text else None
