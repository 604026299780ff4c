"""``--param lr=find``: a learning-rate range from one range test of the command (``vivace find lr``).

The range is a decade around the rate that the test suggests, at both sides; its upper end is at most the rate after
which the loss rises. The user's own rate (``--default``) is always inside.

>>> range_around(0.03, diverges=None, own=None), range_around(0.03, diverges=0.1, own=0.5)
((0.003, 0.3), (0.003, 0.5))
"""

from __future__ import annotations

from pathlib import Path

from vivace.errors import UserError
from vivace.hpo.asked import Asked
from vivace.hpo.trial_run import texts_of
from vivace.measure.command import Progress, Sink
from vivace.protocol.rates import RateTest
from vivace.tune.finders.rate import AskedRate, find_rate

__all__ = ["FOLDER", "WHILE_SOUGHT", "find_range", "range_around"]

FOLDER = "find-lr"
_TEST = RateTest(1e-7, 10.0, 200)  # as of ``vivace find lr``
WHILE_SOUGHT = f"log({_TEST.lowest:g},{_TEST.highest:g})"
"""The range of the parameter in a study that is only asked for its command."""
_DECADE = 10.0


def find_range(asked: Asked, name: str, folder: Path, sink: Sink, progress: Progress) -> str:
    """Run the command with the user's own values, and return the range as one writes it."""
    place = folder / FOLDER
    place.mkdir(parents=True)
    command = asked.template.filled(texts_of(asked, asked.baseline, 0, None, place))
    search = find_rate(AskedRate(command, _TEST, asked.trial_limit_s), place, sink, progress)
    if search.interrupted:
        raise KeyboardInterrupt
    if search.suggested is None:
        raise UserError(
            f"{name}=find: the loss falls at no learning rate ({search.ended})",
            hint=f"look at the losses in {place}, and give the range yourself: --param '{name}=log(1e-4,1)'",
        )
    own = float(asked.defaults[name]) if asked.defaults is not None else None
    low, high = range_around(search.suggested, search.diverges, own)
    return f"log({low!r},{high!r})"


def range_around(suggested: float, diverges: float | None, own: float | None) -> tuple[float, float]:
    low, high = suggested / _DECADE, suggested * _DECADE
    if diverges is not None and diverges > suggested:
        high = min(high, diverges)
    low, high = _short(low), _short(high)
    return (low, high) if own is None else (min(low, own), max(high, own))


def _short(rate: float) -> float:
    """To three figures, as nobody knows it better."""
    return float(f"{rate:.3g}")
