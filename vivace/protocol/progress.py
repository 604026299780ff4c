"""How far a process is, as it tells the command several times a second."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["SeenProgress"]


@dataclass(frozen=True)
class SeenProgress:
    """``done`` of ``of`` steps of a stage; ``of`` None: how many there will be is not known."""

    rank: int = 0
    stage: str = ""
    done: int = 0
    of: int | None = None
    steps: int = 0
    """Since the training began, in all stages."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> SeenProgress:
        """Raises ``ValueError`` for anything that ``to_text`` does not write."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"not a progress: {error}") from None
