"""What a rank tells of its part in a split training: what was split and what was not, and what the ranks exchanged.

Rank 0 leaves it in the run's folder as ``scale-PID.json``; ``measure`` puts it into the record.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from vivace.protocol.codec import decode

__all__ = ["REPORTS", "Gathered", "ScaleReport"]

REPORTS = "scale-*.json"


@dataclass(frozen=True)
class Gathered:
    """A line of the script that needed a whole batch where each rank had its rows."""

    by: str
    """The torch function."""
    file: str
    line: int
    code: str
    calls: int
    bytes: int
    """Of the whole tensors, over all those calls."""


@dataclass(frozen=True)
class ScaleReport:
    """``steps``: optimizer steps that the counts are over; the first few, in which splits are proved, are left out."""

    world: int
    split: list[str] = field(default_factory=list)
    whole: dict[str, str] = field(default_factory=dict)
    """Model → why every rank runs it whole."""
    loaded_whole: dict[str, str] = field(default_factory=dict)
    """Dataset → why every rank loads all of it."""
    steps: int = 0
    bytes_sent: int = 0
    """By this rank, in all exchanges of those steps."""
    gathered: list[Gathered] = field(default_factory=list)
    gradient_bytes: int = 0
    """Of all parameters that are averaged."""
    sent_early: int = 0
    """Buckets of gradients that were sent before their backward pass had ended, in all steps."""
    drift_checks: int = 0

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, value: Any) -> ScaleReport:
        """Raises ``ProtocolError`` for another shape."""
        return decode(cls, value)
