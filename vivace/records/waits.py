"""What a GPU that has nothing to do waits for: the names in a record's ``idle_during_ms``, in words."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["WAITS_FOR", "waits_in_words"]

WAITS_FOR = {
    "loader": "the loader's next batch",
    "allocator": "the allocator, which asks the driver for memory",
    "copy": "a copy of the host's",
    "sync": "the host, which had waited at a sync",
    "stall": "the host, which launches nothing (another thread holds Python, or no core is free)",
    "communication": "other ranks",
    "forward": "launches of the forward",
    "backward": "launches of the backward",
    "optimizer": "launches of the optimizer",
    "other": "what the script does between the parts of a step",
}
_SMALLEST_SHARE = 0.05  # of the idle time: less is not worth a word


def waits_in_words(idle_during_ms: Mapping[str, float], idle_ms: float) -> list[str]:
    """The largest first, as parts of ``idle_ms``.

    >>> waits_in_words({"forward": 1.0, "loader": 3.0}, 8.0)
    ["6.0 ms for the loader's next batch", '2.0 ms for launches of the forward']
    """
    total = sum(idle_during_ms.values())
    ranked = sorted(idle_during_ms.items(), key=lambda item: -item[1])
    return [
        f"{idle_ms * ms / total:.1f} ms for {WAITS_FOR.get(name, name)}"
        for name, ms in ranked
        if ms > _SMALLEST_SHARE * total
    ]
