"""Numbers as a reader wants them: three or four figures, a unit, and words for what is missing or not finite."""

from __future__ import annotations

import math

from vivace.records.proof import Interval

__all__ = [
    "amount",
    "bytes_gib",
    "counted",
    "duration",
    "interval",
    "milliseconds",
    "percent",
    "plain",
    "ratio",
    "signed_percent",
]

MISSING = "–"


def plain(value: float | int | None, digits: int = 4) -> str:
    """
    >>> plain(12345.6), plain(0.123456), plain(None), plain(float("nan"))
    ('12,346', '0.1235', '–', 'NaN')
    """
    if value is None:
        return MISSING
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def amount(value: float | None, unit: str, digits: int = 3) -> str:
    return f"{plain(value, digits)} {unit}" if value is not None else MISSING


def counted(count: int | None, thing: str) -> str:
    """
    >>> counted(1, "worker"), counted(2000, "step"), counted(0, "pair")
    ('1 worker', '2,000 steps', '0 pairs')
    """
    return f"{plain(count)} {thing}{'' if count == 1 else 's'}"


def milliseconds(value: float | None) -> str:
    return amount(value, "ms")


def bytes_gib(value: float | None) -> str:
    """
    >>> bytes_gib(0.25), bytes_gib(10.96)
    ('256 MiB', '11.0 GiB')
    """
    if value is not None and abs(value) < 1:
        return amount(value * 1024, "MiB")
    return amount(value, "GiB")


def ratio(value: float | None) -> str:
    """
    >>> ratio(2.7449), ratio(15.23), ratio(0.066)
    ('2.74×', '15.2×', '0.0660×')
    """
    if value is None or not math.isfinite(value):
        return plain(value)
    return f"{plain(value, 3)}×" if value >= 10 or value < 0.1 else f"{value:.2f}×"


def interval(value: Interval | None) -> str:
    """
    >>> interval(Interval(median=2, low=1.9, high=2.1))
    '2.00× (1.90 to 2.10)'
    """
    if value is None:
        return MISSING
    return f"{ratio(value.median)} ({ratio(value.low)[:-1]} to {ratio(value.high)[:-1]})"


def percent(value: float | None) -> str:
    return f"{plain(100 * value, 3)} %" if value is not None else MISSING


def signed_percent(before: float | None, after: float | None) -> str:
    """How much more or less: ``−38 %``. Empty when it cannot be said."""
    if before is None or after is None or not before or not math.isfinite(after / before):
        return ""
    change = 100 * (after / before - 1)
    if abs(change) < 0.5:
        return "same"
    return f"{'+' if change > 0 else '−'}{abs(change):.0f} %"


def duration(seconds: float | None) -> str:
    """
    >>> duration(42.4), duration(95), duration(7300)
    ('42 s', '1 min 35 s', '2 h 2 min')
    """
    if seconds is None or not math.isfinite(seconds):
        return plain(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"
