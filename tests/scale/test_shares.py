"""Every row belongs to one rank, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vivace.scale.shares import Shares


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 5))
def test_the_shares_cover_the_batch_in_order(size: int, world: int, per_sample: int):
    shares = [Shares(size, rank, world, per_sample) for rank in range(world)]
    rows = [row for share in shares for row in range(share.start, share.start + share.mine)]
    assert rows == list(range(size * per_sample))
    assert max(share.mine for share in shares) - min(share.mine for share in shares) <= per_sample
    assert shares[0].most == max(share.mine for share in shares)
    assert shares[0].can_be_split == all(share.mine for share in shares)
