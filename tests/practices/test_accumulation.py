"""accumulation: advice for a full card, by hand, never where there is room."""

from __future__ import annotations

import pytest
import torch
from practices.evidence import measurement

from vivace.practices import accumulation

FULL = {"allocated_peak_gib": 130.0, "reserved_peak_gib": 138.0}


def test_accumulation_is_advised_when_memory_is_the_limit():
    found = accumulation.find(measurement(memory=FULL, batch_size=64))
    assert found is not None
    assert "two passes of 32 samples" in found.says
    assert found.exposed_ms == 0  # it makes room, not speed
    assert accumulation.PRACTICE.change is None


@pytest.mark.parametrize(
    "present",
    [
        {},
        {"memory": FULL, "micro_batches": 4.0},  # it accumulates already
        {"memory": FULL, "batch_size": 1},
        {"on_gpu": False},
    ],
)
def test_accumulation_is_not_advised_otherwise(present: dict):
    assert accumulation.find(measurement(**present)) is None


def test_the_lines_for_accumulation_give_the_gradient_of_the_whole_batch():
    torch.manual_seed(0)
    model, whole = torch.nn.Linear(4, 2), torch.randn(8, 4)
    model(whole).square().mean().backward()
    expected = model.weight.grad.clone()
    model.zero_grad()
    for half in whole.split(4):
        (model(half).square().mean() / 2).backward()
    torch.testing.assert_close(model.weight.grad, expected)
