"""Length bucketing: found when much is padding or ranks wait for the longest; the lines by hand do what they say."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from practices.evidence import measurement

from vivace.practices.length_bucketing import PRACTICE, find


def test_padding_is_priced_by_its_share_of_the_computing():
    found = find(measurement(structure={"padding_share": 0.4}, input_shapes=12))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.4 * 90.0)
    assert "40% of the tokens are padding" in found.says


@pytest.mark.parametrize(
    ("structure", "squares_ms"),
    [
        ({"attention": {"scaled_dot_product_flash_attention": 12}}, 20.0),
        ({"softmax_squares": 12}, 70.0),  # written out: its products and masks are among the others
        ({}, 0.0),
    ],
)
def test_attention_on_padding_costs_the_square_of_its_length(structure: dict, squares_ms: float):
    roles = {"attention": 20.0, "softmax": 10.0, "matmul": 60.0, "norm": 10.0}
    found = find(measurement(structure={"padding_share": 0.5, **structure}, roles=roles))
    assert found is not None
    assert found.exposed_ms == pytest.approx(90.0 * (squares_ms / 100 * 0.75 + (1 - squares_ms / 100) * 0.5))


def test_both_add_up_but_padding_is_not_waited_for_twice():
    found = find(measurement(structure={"padding_share": 0.5}, imbalance_ms=20.0, input_imbalance=0.3))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.5 * 90.0 + 0.5 * 20.0)
    assert "50% of the tokens are padding" in found.says
    assert "computes 20.0 ms per step more" in found.says


def test_ranks_that_wait_for_the_longest_are_priced_by_the_wait():
    found = find(measurement(imbalance_ms=14.0, input_imbalance=0.3, input_shapes=9))
    assert found is not None
    assert found.exposed_ms == 14.0
    assert found.evidence["imbalance_ms"] == 14.0


@pytest.mark.parametrize(
    "present",
    [
        {"structure": {"padding_share": 0.02}, "input_shapes": 12},
        {"imbalance_ms": 14.0, "input_imbalance": 0.0, "input_shapes": 9},  # the same lengths: a slow GPU, not the data
        {"imbalance_ms": 14.0, "input_imbalance": None},
        {"imbalance_ms": 2.0, "input_imbalance": 0.3, "input_shapes": 9},
        {"structure": {"padding_share": None}},
    ],
)
def test_not_found_when_present_or_of_no_cost(present: dict):
    assert find(measurement(**present)) is None


def test_the_lines_by_hand_use_every_sample_once_and_leave_little_padding():
    torch.manual_seed(0)
    lengths = torch.randint(1, 500, (4000,)).tolist()
    *lines, loader = PRACTICE.by_hand.splitlines()
    dataset = [range(length) for length in lengths]
    names = {"dataset": dataset, "batch_size": 16, "torch": torch, "random": random, "SimpleNamespace": SimpleNamespace}
    exec("\n".join(lines), names)
    batches = names["batches"]
    assert sorted(i for batch in batches for i in batch) == list(range(4000))
    assert _padding(batches, lengths) < 0.05 < 0.4 < _padding([range(i, i + 16) for i in range(0, 4000, 16)], lengths)
    assert "batch_sampler=batches" in loader


def _padding(batches: list, lengths: list[int]) -> float:
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    return 1 - sum(lengths) / padded


def test_only_the_user_can_change_it_and_it_is_another_training():
    assert PRACTICE.change is None
    assert PRACTICE.risk == "algorithmic"
