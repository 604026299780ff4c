"""Packing: every sample once in few rows, and a packed row computes what its samples compute alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from vivace.methods.lengths import fill_rows, pack


@given(st.lists(st.integers(1, 64), max_size=200))
def test_rows_hold_every_sample_once(lengths: list[int]):
    rows = fill_rows(lengths, 64)
    assert sorted(sample for row in rows for sample in row) == list(range(len(lengths)))
    assert all(sum(lengths[sample] for sample in row) <= 64 for row in rows)
    half_full = [row for row in rows if 2 * sum(lengths[sample] for sample in row) <= 64]
    assert len(half_full) <= 1  # else two of them would share a row


def test_the_fullest_row_with_room_is_taken():
    assert fill_rows([6, 5, 3, 4], 10) == [[0, 3], [1, 2]]


def test_random_lengths_leave_little_empty():
    lengths = torch.randint(1, 512, (2000,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = fill_rows(lengths, 1024)
    assert sum(lengths) / (1024 * len(rows)) > 0.98


@pytest.mark.parametrize("causal", [True, False])
def test_a_row_computes_what_its_samples_compute_alone(causal: bool):
    torch.manual_seed(0)
    samples = [torch.randint(20, (length,)) for length in (5, 3, 6)]
    packed = pack(samples, row=16)
    words, places = torch.randn(20, 8, dtype=torch.float64), torch.randn(16, 8, dtype=torch.float64)

    def attended(tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = (words[tokens] + places[positions])[None, None]
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)[0, 0]

    together = attended(packed.tokens, packed.positions, packed.mask(causal))
    first = 0
    for sample in samples:
        size = len(sample)
        everyone = torch.ones(size, size, dtype=torch.bool)
        alone = attended(sample, torch.arange(size), everyone.tril() if causal else everyone)
        torch.testing.assert_close(together[first : first + size], alone)
        first += size
    assert together.isfinite().all()


def test_targets_stay_within_a_sample():
    packed = pack([torch.tensor([7, 8, 9]), torch.tensor([4, 5])], row=7, padding=1)
    assert packed.tokens.tolist() == [7, 8, 9, 4, 5, 1, 1]
    assert packed.positions.tolist() == [0, 1, 2, 0, 1, 0, 1]
    assert packed.documents.tolist() == [0, 0, 0, 1, 1, -1, -1]
    assert packed.next_tokens().tolist() == [8, 9, -100, 5, -100, -100, -100]


def test_what_has_no_room_is_refused():
    with pytest.raises(ValueError, match="a sample has 9 tokens, and a row has room for 8"):
        fill_rows([9], 8)
    with pytest.raises(ValueError, match="the samples have 9 tokens"):
        pack([torch.zeros(9)], 8)
