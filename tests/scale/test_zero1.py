"""Who owns which parameter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vivace.scale.zero1 import owners


@given(st.lists(st.integers(1, 1000)), st.lists(st.integers(1, 1000)), st.integers(1, 8))
def test_shares_are_even_and_later_parameters_change_nothing(sizes: list[int], more: list[int], world: int):
    found = owners(sizes, world)
    assert owners([*sizes, *more], world)[: len(sizes)] == found
    held = [sum(size for size, owner in zip(sizes, found, strict=True) if owner == rank) for rank in range(world)]
    assert max(held, default=0) - min(held, default=0) <= max(sizes, default=0)
