"""Practices switched on and off inside one process: what is asked, and what was seen (``switchback-PID.json``)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from vivace.protocol.text_enum import TextEnum

__all__ = ["SEEN", "ArmSeen", "ArmState", "SeenSwitchback", "SwitchbackTest", "seen_name"]

SEEN = "switchback-*.json"


@dataclass(frozen=True)
class SwitchbackTest:
    """``words``: practices, in the order of trying. Each is compared with ``start`` and what was kept before it."""

    words: tuple[str, ...]
    seconds: float
    """From the first comparison on."""
    start: tuple[str, ...] = ()


class ArmState(TextEnum):
    PAYS = "pays"
    NO_GAIN = "no gain"
    UNDECIDED = "undecided"
    REFUSED = "refused"
    NOT_SWITCHABLE = "not switchable"
    NOT_REACHED = "not reached"
    TRYING = "trying"
    """It was on when this was written: if the process died, it did so with it."""


@dataclass(frozen=True)
class ArmSeen:
    """``ratio``: speedup over what was on before it, with a range; of ``pairs`` neighbouring windows."""

    word: str
    state: ArmState
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    text: str = ""


@dataclass(frozen=True)
class SeenSwitchback:
    arms: tuple[ArmSeen, ...] = ()
    kept: tuple[str, ...] = ()
    total: ArmSeen | None = None
    """All that was kept, against the script as it is."""
    complete: bool = False
    cycles: int = 0
    seconds: float = 0.0

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> SeenSwitchback:
        """Raises ``ValueError`` for anything that ``to_text`` does not write."""
        try:
            fields = dict(json.loads(text))
            fields["arms"] = tuple(_arm(each) for each in fields["arms"])
            fields["kept"] = tuple(fields["kept"])
            fields["total"] = _arm(fields["total"]) if fields["total"] is not None else None
            return cls(**fields)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a switchback: {error}") from None


def _arm(fields: dict[str, object]) -> ArmSeen:
    return ArmSeen(**{**fields, "state": ArmState(fields["state"])})  # type: ignore[arg-type]


def seen_name(pid: int) -> str:
    return f"switchback-{pid}.json"
