"""The journal of a training that races: when it began, its steps, what compiling took; one JSON object a line.

Written by the process of each rank (``measure/inside/journal.py``) as ``journal-RANK-PID.jsonl``, read while it grows.
Times are ``time.time()``: other processes, perhaps of other machines, compare them with theirs.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass

from vivace.protocol.text_enum import TextEnum

__all__ = ["JOURNAL", "Kind", "Note", "fingerprint", "journal_name"]

JOURNAL = "journal-*.jsonl"
_COMPARED = 120  # characters of a line


class Kind(TextEnum):
    BEGIN = "begin"
    """The training or an evaluation first asks for a batch, or a network is first called."""
    STEP = "step"
    """``steps`` and ``samples`` (None: not known) since the beginning."""
    COMPILED = "compiled"
    """``torch.compile`` was at work for the ``seconds`` before."""
    ENERGY = "energy"
    """``joules``: of this process's GPUs, by a counter that began at any time."""
    PRINTED = "printed"
    """A line with a number in it was printed, after so many steps; ``line``: which (``fingerprint``)."""


@dataclass(frozen=True)
class Note:
    kind: Kind
    at: float
    steps: int = 0
    samples: int | None = None
    seconds: float = 0.0
    joules: float = 0.0
    line: int = 0

    def to_line(self) -> str:
        default = Note(self.kind, self.at)
        told = {name: value for name, value in asdict(self).items() if value != getattr(default, name)}
        return json.dumps({**told, "kind": self.kind.value, "at": self.at}) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Note:
        """Raises ``ValueError`` for anything that ``to_line`` does not write."""
        try:
            fields = dict(json.loads(line))
            return cls(**{**fields, "kind": Kind(fields["kind"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a note: {error}") from None


def fingerprint(line: str) -> int:
    """Tells lines apart, whatever the spaces in them.

    >>> fingerprint(" loss\\t0.5\\n") == fingerprint("loss 0.5") != fingerprint("loss 0.6")
    True
    """
    return zlib.crc32(" ".join(line.split())[:_COMPARED].encode(errors="replace"))


def journal_name(rank: int, pid: int) -> str:
    return f"journal-{rank}-{pid}.jsonl"
