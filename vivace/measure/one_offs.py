"""Steps that are slow once, for a new input size (``inside/one_off.py`` tells them): left out, on all ranks alike.

Ranks wait for each other, so what is slow on one is slow on all; and their series must go on lining up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["without_one_offs"]

Payload = dict[str, Any]
_BY_STEP = ("samples", "tokens", "losses", "input_elements")
_BY_CLOCK = ("series", "host_series")


def without_one_offs(payloads: Sequence[Payload]) -> tuple[list[Payload], list[str]]:
    """The payloads without such steps, and a note on each."""
    found = sorted({p["one_off_step"] for p in payloads if p.get("one_off_step") is not None})
    notes = [
        f"left out: one step of {_longest_ms(payloads, step):.0f} ms, the first with inputs of another size"
        for step in found
    ]
    return [_without(p, found) for p in payloads] if found else list(payloads), notes


def _longest_ms(payloads: Sequence[Payload], step: int) -> float:
    return max(p["series"]["step"][step] for p in payloads if step < len(p["series"]["step"]))


def _without(payload: Payload, steps: Sequence[int]) -> Payload:
    shorter: Payload = {name: _dropped(payload[name], steps) for name in _BY_STEP if payload.get(name)}
    for clock in _BY_CLOCK:
        if payload.get(clock):
            shorter[clock] = {name: _dropped(values, steps) for name, values in payload[clock].items()}
    return {**payload, **shorter}


def _dropped(values: Sequence[Any], steps: Sequence[int]) -> list[Any]:
    return [value for number, value in enumerate(values) if number not in steps]
