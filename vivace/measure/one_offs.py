"""Steps that are slow once, for a new input size (``inside/steps/one_off.py`` finds them), are left out on all ranks.

Ranks wait for each other, so what is slow on one is slow on all; and their series must go on lining up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from vivace.protocol.payload import Payload

__all__ = ["without_one_offs"]

T = TypeVar("T")


def without_one_offs(payloads: Sequence[Payload]) -> tuple[list[Payload], list[str]]:
    """The payloads without such steps, and a note on each."""
    found = sorted({p.one_off_step for p in payloads if p.one_off_step is not None})
    notes = [
        f"left out: one step of {_longest_ms(payloads, step):.0f} ms, the first with inputs of another size"
        for step in found
    ]
    return [_without(p, found) for p in payloads] if found else list(payloads), notes


def _longest_ms(payloads: Sequence[Payload], step: int) -> float:
    return max(p.series.step[step] for p in payloads if step < len(p.series.step))


def _without(payload: Payload, steps: Sequence[int]) -> Payload:
    def drop(values: Sequence[T]) -> list[T]:
        return [value for number, value in enumerate(values) if number not in steps]

    return replace(
        payload,
        series=payload.series.mapped(drop),
        host_series=payload.host_series.mapped(drop) if payload.host_series else None,
        samples=drop(payload.samples),
        tokens=drop(payload.tokens),
        losses=drop(payload.losses),
        input_elements=drop(payload.input_elements),
    )
