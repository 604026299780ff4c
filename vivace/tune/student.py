"""Quantiles of Student's t distribution without scipy: exact for whole degrees of freedom, interpolated between them.

>>> round(t_quantile(0.95, 4), 3), round(t_quantile(0.99, 1), 2)
(2.776, 63.66)
"""

from __future__ import annotations

import math
from functools import cache

__all__ = ["t_quantile"]

_HALVINGS = 60  # of a right angle: to the last bits of a float


def t_quantile(inside: float, freedom: float) -> float:
    """The ``t`` with the share ``inside`` of the distribution between ``-t`` and ``t``.

    Between whole degrees of freedom it is interpolated over their reciprocals, which errs on the large side.
    """
    assert 0 < inside < 1, inside
    assert freedom >= 1, freedom
    fewer = math.floor(freedom)
    if fewer == freedom:
        return _exactly(inside, fewer)
    share = fewer * (fewer + 1 - freedom) / freedom  # of the way from one to the other, by their reciprocals
    return share * _exactly(inside, fewer) + (1 - share) * _exactly(inside, fewer + 1)


@cache
def _exactly(inside: float, freedom: int) -> float:
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < inside else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _inside(angle: float, freedom: int) -> float:
    """The share between ``-t`` and ``t``, where ``t = sqrt(freedom) * tan(angle)``.

    Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 if odd else 1, freedom - 2, 2):
        term *= cosine**2 * k / (k + 1)
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
