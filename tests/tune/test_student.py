"""Quantiles of Student's t against a published table and against what must hold for any of them."""

from __future__ import annotations

from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.tune.student import t_quantile


@pytest.mark.parametrize(
    ("inside", "freedom", "published"),
    [  # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: upper 0.975 and 0.995
        (0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 3, 3.182), (0.95, 4, 2.776), (0.95, 5, 2.571), (0.95, 10, 2.228),
        (0.95, 30, 2.042), (0.95, 100, 1.984), (0.99, 1, 63.657), (0.99, 2, 9.925), (0.99, 3, 5.841), (0.99, 20, 2.845),
    ],
)  # fmt: skip
def test_it_is_the_published_table(inside: float, freedom: int, published: float):
    assert t_quantile(inside, freedom) == pytest.approx(published, abs=6e-4)


@given(st.floats(0.01, 0.999), st.integers(1, 40), st.floats(0.01, 0.99))
def test_between_whole_degrees_of_freedom_it_lies_between_theirs(inside: float, freedom: int, more: float):
    assert t_quantile(inside, freedom + 1) < t_quantile(inside, freedom + more) < t_quantile(inside, freedom)


def test_an_interpolated_one_errs_on_the_large_side():
    """2.5 degrees of freedom: 3.5747 by numerical integration; 1/2.5 lies 0.4 of the way from 1/3 to 1/2."""
    assert t_quantile(0.95, 2.5) == pytest.approx(0.4 * 4.3027 + 0.6 * 3.1824, abs=1e-3)
    assert 3.5747 < t_quantile(0.95, 2.5) < 1.03 * 3.5747


@given(st.floats(0.01, 0.999), st.integers(1, 40))
def test_more_runs_and_less_certainty_make_it_smaller(inside: float, freedom: int):
    t = t_quantile(inside, freedom)
    assert t_quantile(inside, freedom + 1) < t
    assert t_quantile(0.99 * inside, freedom) < t
    assert t > NormalDist().inv_cdf((1 + inside) / 2)
