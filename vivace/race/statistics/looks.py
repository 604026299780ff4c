"""When is a race decided? After each round the figures are looked at, and every look is a chance to be wrong.

Each look asks for the same share, so that the intervals of all looks together cover 95 % (Pocock 1977, Biometrika 64,
table 1). The chances to be wrong are below his, by a fifth, and with more than three looks by nearly a half: over few
runs of entries that scatter differently both tests are too narrow (``benchmarks/race_calibration.py``).
"""

from __future__ import annotations

__all__ = ["FIRST_LOOK", "share_of_look"]

FIRST_LOOK = 3
"""Rounds before a race may end early."""
_SAFETY, _SAFETY_OF_MANY = 0.8, 0.55
_MANY = 3
_POCOCK = {1: 0.05, 2: 0.0294, 3: 0.0221, 4: 0.0182, 5: 0.0158, 6: 0.0142, 7: 0.0130, 8: 0.0120, 9: 0.0112, 10: 0.0106}


def share_of_look(seeds: int) -> float:
    """Inside the interval at every look of a race over ``seeds`` rounds.

    >>> round(share_of_look(3), 4), round(share_of_look(5), 4)
    (0.96, 0.9823)
    """
    looks = max(1, seeds - FIRST_LOOK + 1)
    return 1 - (_SAFETY if looks <= _MANY else _SAFETY_OF_MANY) * _POCOCK.get(looks, _POCOCK[1] / looks)
