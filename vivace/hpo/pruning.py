"""When to report and when to prune: what vivace adds to Optuna's pruners.

A script may print its metric a thousand times. Each report is written to the study, so reports thin out: the first
twenty, then at steps that grow by a tenth. The steps are the same for all trials, and so comparable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vivace.hpo.asked import PrunerName

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

__all__ = ["KEPT", "OFTEN", "first_look", "full_length", "is_reported", "may_prune"]

OFTEN = 4
"""Reports of a whole trial, from which on its beginning says something about its end."""
KEPT = 3
"""One in so many goes on: the default of Li et al., Hyperband, JMLR 18 (2018)."""
_ALL_UNTIL = 20
_GROWTH = 1.1


def is_reported(step: int) -> bool:
    """Whether the reading of that number (from 1) is reported.

    >>> [step for step in range(1, 60) if is_reported(step)][18:]
    [19, 20, 22, 25, 28, 31, 35, 39, 43, 48, 53, 59]
    """
    at = _ALL_UNTIL
    while at < step:
        at = max(at + 1, -int(-at * _GROWTH // 1))
    return step <= _ALL_UNTIL or at == step


def first_look(length: int) -> int:
    """When successive halving first looks at a trial of ``length`` readings: at a ninth; the second is at a third."""
    return max(1, length // KEPT**2)


def full_length(trials: Iterable[FrozenTrial]) -> int | None:
    """The last step of a whole trial, where one is known."""
    from optuna.trial import TrialState

    return max((t.last_step for t in trials if t.state is TrialState.COMPLETE and t.last_step), default=None)


def may_prune(pruner: PrunerName, step: int, length: int | None) -> bool:
    """Whether the pruner is to be asked. Not before one trial is whole (``length``), for nothing is known yet; not of a
    trial that has come to its end anyway; and by itself (``auto``) not where the metric comes rarely."""
    if pruner is PrunerName.NONE or length is None or step >= length:
        return False
    return pruner is not PrunerName.AUTO or length >= OFTEN
