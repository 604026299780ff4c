"""Batches of constant token count: every sample once, within the limit, little padding, ranks alike."""

from __future__ import annotations

import pytest
import torch

from vivace.methods.lengths import TokenBatches

LENGTHS = torch.randint(1, 500, (4000,), generator=torch.Generator().manual_seed(0)).tolist()


def padded(batch: list[int]) -> int:
    return len(batch) * max(LENGTHS[sample] for sample in batch)


def test_every_sample_once_within_the_limit_and_with_little_padding():
    batches = list(TokenBatches(LENGTHS, tokens=4096))
    assert sorted(sample for batch in batches for sample in batch) == list(range(4000))
    assert max(map(padded, batches)) <= 4096
    assert sum(LENGTHS) / sum(map(padded, batches)) > 0.97
    assert sum(map(padded, batches)) / len(batches) > 0.9 * 4096  # about constant
    assert len({len(batch) for batch in batches}) > 20


def test_ranks_share_a_step_of_like_lengths_and_no_sample():
    samplers = [TokenBatches(LENGTHS, 4096, seed=3, rank=rank, ranks=4) for rank in range(4)]
    steps = list(zip(*samplers, strict=True))
    assert len(steps) == len(samplers[0])
    seen = [sample for step in steps for batch in step for sample in batch]
    assert len(seen) == len(set(seen))
    assert len(TokenBatches(LENGTHS, 4096, seed=3)) - 4 * len(steps) in range(4)
    apart = [max(map(len, step)) / min(map(len, step)) for step in steps]
    assert sorted(apart)[len(apart) // 2] < 1.1


def test_each_epoch_has_its_own_order_and_the_same_again():
    batches = TokenBatches(LENGTHS, 4096, window=500)
    first = list(batches)
    assert list(batches) == first
    batches.set_epoch(1)
    assert list(batches) != first
    batches.set_epoch(0)
    assert list(batches) == first


def test_a_loader_takes_it():
    data = [torch.zeros(length) for length in LENGTHS[:50]]
    loader = torch.utils.data.DataLoader(
        data, batch_sampler=TokenBatches(LENGTHS[:50], 1000), collate_fn=torch.nn.utils.rnn.pad_sequence
    )
    assert sum(batch.shape[1] for batch in loader) == 50


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="a sample has 9 tokens, and a batch may have 8"):
        TokenBatches([3, 9], tokens=8)
    with pytest.raises(ValueError, match="rank 2 is not one of 2"):
        TokenBatches([3], tokens=8, rank=2, ranks=2)
