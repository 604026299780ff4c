"""What the command asks of every Python process of the user's command, carried in one environment variable."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from vivace.protocol.gpu_names import KnownGpu
from vivace.protocol.rates import RateTest
from vivace.protocol.switchback import SwitchbackTest
from vivace.protocol.text_enum import TextEnum
from vivace.protocol.version import PROTOCOL, ProtocolError

__all__ = ["HOME_VARIABLE", "VARIABLE", "Entry", "ProcessRequest"]

VARIABLE = "VIVACE_INSIDE"
HOME_VARIABLE = "VIVACE_HOME"


class Entry(TextEnum):
    """What is put in place in the process."""

    MEASURING = "measuring"
    NOTHING = "nothing"
    """The door is open, for what another variable asks (``protocol.chaos``)."""
    PRACTICES = "practices"
    """Practices, then measuring if it is asked for. Trials without any practice come this way too, to be alike."""
    RATES = "rates"
    """A learning-rate range test."""
    SWITCHBACK = "switchback"
    """Practices that are switched on and off while the script trains."""


@dataclass(frozen=True)
class ProcessRequest:
    """``folder`` receives what the process answers; ``warmup_steps`` of None means: detect it.

    ``seed_offset`` of None leaves the script's seeds alone. ``same_draws``: practices draw random numbers as the script
    alone would, where they can. ``known_gpus``: what the catalogue has peaks for, because
    the process cannot read it (Python has ``tomllib`` since 3.11 only). ``journal``: keep one, for a race.
    ``files_apart``: what the script writes goes to a folder of its own, and nowhere when it ends.
    ``rate_test``, ``switchback``: for those entries. ``lines``: sample the stack in steps of their own.
    ``histogram_steps``: steps of their own in which the magnitudes of activations and gradients are counted.
    """

    folder: str
    protocol: int = PROTOCOL
    entry: Entry = Entry.MEASURING
    measure: bool = True
    steps: int = 50
    warmup_steps: int | None = None
    profile_steps: int = 3
    sync_steps: int = 3
    count_flops: bool = True
    lines: bool = False
    histogram_steps: int = 0
    grad_norms: bool = False
    seed_offset: int | None = None
    practices: tuple[str, ...] = ()
    strict: bool = False
    same_draws: bool = False
    files_apart: bool = False
    known_gpus: tuple[KnownGpu, ...] = ()
    journal: bool = False
    rate_test: RateTest | None = None
    switchback: SwitchbackTest | None = None

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ProcessRequest:
        """Raises ``ProtocolError`` for a request of another version."""
        fields = json.loads(text)
        if fields.get("protocol") != PROTOCOL:
            raise ProtocolError(f"asked in protocol {fields.get('protocol')}, and this vivace speaks {PROTOCOL}")
        fields["entry"] = Entry(fields["entry"])
        fields["practices"] = tuple(fields["practices"])
        fields["known_gpus"] = tuple(
            KnownGpu(**{name: tuple(values) for name, values in gpu.items()}) for gpu in fields["known_gpus"]
        )
        fields["rate_test"] = RateTest(**fields["rate_test"]) if fields["rate_test"] is not None else None
        if fields["switchback"] is not None:
            asked = fields["switchback"]
            fields["switchback"] = SwitchbackTest(tuple(asked["words"]), asked["seconds"], tuple(asked["start"]))
        return cls(**fields)
