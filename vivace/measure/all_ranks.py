"""What a step takes on the ranks of a job together: the mean over them, and how much of communication is waiting.

Which rank is late changes from run to run, and the time of one rank in a collective with it: nearly nothing on the
rank that comes last, the whole delay on the others. So figures of one rank do not describe the job. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from vivace.protocol.payload import Payload, Series

__all__ = ["host_series", "mean_series", "waiting_for_ranks_ms"]


def mean_series(payloads: Sequence[Payload]) -> Series:
    """Step by step, over the ranks that have as many steps as the first."""
    return _mean([payload.series for payload in _with_all_steps(payloads)])


def host_series(payloads: Sequence[Payload]) -> Series | None:
    every = [payload.host_series for payload in _with_all_steps(payloads) if payload.host_series is not None]
    return _mean(every) if every else None


def waiting_for_ranks_ms(payloads: Sequence[Payload]) -> float | None:
    """The part of ``communication`` in which a rank waits for others that are still computing: mean over the ranks.

    The last rank to arrive waits for nobody, so what it spends is the exchange itself.
    """
    ranks = [p.series.phases.get("communication", []) for p in _with_all_steps(payloads)]
    columns = list(zip(*ranks, strict=False))
    if len(ranks) < 2 or not columns:
        return None
    return sum(sum(column) / len(column) - min(column) for column in columns) / len(columns)


def _with_all_steps(payloads: Sequence[Payload]) -> list[Payload]:
    return [payload for payload in payloads if len(payload.series.step) == len(payloads[0].series.step)]


def _mean(ranks: Sequence[Series]) -> Series:
    if len(ranks) == 1:
        return ranks[0]
    phases = {name: _columns_mean([one.phases.get(name, []) for one in ranks]) for name in ranks[0].phases}
    steps = len(ranks[0].step)
    exchanges = {
        name: _columns_mean([one.exchanges.get(name, [0.0] * steps) for one in ranks])
        for name in sorted({name for one in ranks for name in one.exchanges})
    }
    return Series(step=_columns_mean([one.step for one in ranks]), phases=phases, exchanges=exchanges)


def _columns_mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*rows, strict=False)]
