"""Communication by dimension of the layout, in words."""

from __future__ import annotations

from collections.abc import Sequence

from vivace.records.measurement import Exchange
from vivace.report.figures import counted

__all__ = ["exchanges_in_words", "messages_in_words"]


def exchanges_in_words(exchanges: Sequence[Exchange]) -> str:
    """One clause a dimension; nothing for a job that exchanges nothing.

    >>> exchanges_in_words([Exchange(dimension="tensor", calls_per_step=8, mib_per_step=1.5, exposed_ms_per_step=2)])
    'exposed per step: tensor 2.0 ms (8 messages, 1.5 MiB)'
    """
    parts = [f"{one.dimension} {one.exposed_ms_per_step:.1f} ms{_in_brackets(one)}" for one in exchanges]
    return f"exposed per step: {', '.join(parts)}" if parts else ""


def _in_brackets(one: Exchange) -> str:
    messages = messages_in_words(one)
    return f" ({messages})" if messages else ""


def messages_in_words(one: Exchange) -> str:
    """How many, and how large; empty where nobody counted."""
    if one.calls_per_step is None:
        return ""
    size = f", {one.mib_per_step:.3g} MiB" if one.mib_per_step is not None else ""
    return f"{counted(round(one.calls_per_step), 'message')}{size}"
