"""Which backward passes end a training step, where no optimizer tells? Pure bookkeeping over what changed after each.

After every backward pass it is noted which parameters have changed by the time of the next one, and whether a batch was
fetched in between. The order of these *gaps* repeats from step to step: one gap per step in the usual loop, several
without a change and then one with it under gradient accumulation, two with different parameters in a GAN.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FEWEST_GAPS", "Gap", "Rhythm", "find_rhythm"]

FEWEST_GAPS = 8  # a GAN with five critic updates to one of the generator's is told from a plain loop
_REPEATS = 3  # times that an order is seen before it is believed
_LONGEST = 64  # backward passes in a step


class Gap(NamedTuple):
    """Between the start of one backward pass and that of the next: numbers of the parameters that changed."""

    changed: frozenset[int]
    fetched: bool = False


class Rhythm(NamedTuple):
    """Every ``period`` backward passes make a step. Gaps are numbered from 0, in the order of the backward passes."""

    period: int
    last: int  # number of the last gap of a step, modulo the period
    updating: frozenset[int]  # numbers of the gaps in which parameters change, modulo the period

    def ends_step(self, gap: int) -> bool:
        return gap % self.period == self.last

    def updates(self, gap: int) -> bool:
        return gap % self.period in self.updating


def find_rhythm(gaps: list[Gap]) -> Rhythm | None:
    """The shortest order that the last gaps repeat; None while there is none.

    >>> plain, nothing = Gap(frozenset({0, 1})), Gap(frozenset())
    >>> find_rhythm([plain] * 8)
    Rhythm(period=1, last=0, updating=frozenset({0}))
    >>> find_rhythm([nothing, nothing, nothing, plain] * 3)
    Rhythm(period=4, last=3, updating=frozenset({3}))
    >>> find_rhythm([nothing] * 100) is None
    True
    """
    for period in range(1, _LONGEST + 1):
        window = max(FEWEST_GAPS, _REPEATS * period)
        if len(gaps) < window:
            return None
        recent = gaps[-window:]
        if all(_alike(recent[n], recent[n + period]) for n in range(window - period)):
            first = len(gaps) - period
            updating = frozenset(n % period for n in range(first, len(gaps)) if gaps[n].changed)
            if updating:
                return Rhythm(period, _last_of_a_step(period, updating), updating)
    return None


def _last_of_a_step(period: int, updating: frozenset[int]) -> int:
    """Steps begin with the first backward pass, as a rule. If one came before them all, an update ends a step."""
    return period - 1 if period - 1 in updating else max(updating)


def _alike(a: Gap, b: Gap) -> bool:
    """Not every parameter changes in every step: an embedding's rows do only when their words occur."""
    if a.fetched != b.fetched or bool(a.changed) != bool(b.changed):
        return False
    return 2 * len(a.changed & b.changed) >= max(len(a.changed), len(b.changed))
