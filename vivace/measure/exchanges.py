"""Communication by dimension of the layout, from what every rank tells. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vivace.protocol.payload import Clock, Payload, Series
from vivace.records.measurement import Exchange

__all__ = ["exchanges"]


def exchanges(payloads: Sequence[Payload], series: Series) -> tuple[Exchange, ...]:
    """The longest wait first. ``series`` is the mean of the ranks."""
    if len(payloads) < 2:
        return ()
    if payloads[0].clock is Clock.GPU:
        return _of_kernels(payloads)
    exposed = {over: sum(values) / len(values) for over, values in series.exchanges.items() if values}
    dimensions = {*exposed, *(over for payload in payloads for over in payload.exchanges)}
    made = [_counted(over, payloads, exposed.get(over, 0.0)) for over in dimensions]
    return tuple(sorted(made, key=lambda one: (-one.exposed_ms_per_step, one.dimension)))


def _counted(over: str, payloads: Sequence[Payload], exposed_ms: float) -> Exchange:
    """Ranks differ: the last stage of a pipeline has other messages than the first."""
    counts = [payload.exchanges.get(over) for payload in payloads if payload.exchanges]
    calls = sum(one.calls for one in counts if one) / len(counts) if counts else None
    size = sum(one.bytes for one in counts if one) / len(counts) if counts else None
    return Exchange(
        dimension=over,
        calls_per_step=calls,
        mib_per_step=size / 2**20 if size is not None else None,
        exposed_ms_per_step=exposed_ms,
    )


def _of_kernels(payloads: Sequence[Payload]) -> tuple[Exchange, ...]:
    """The first rank's: its profile is the record's."""
    return tuple(Exchange(**one) for one in (payloads[0].profile or {}).get("exchanges", ()))
