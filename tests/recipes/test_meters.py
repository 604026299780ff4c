"""MFU: counted operations over the catalogue's peak; nothing where the hardware is not known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vivace.recipes import meters
from vivace.recipes.meters import Meters, flops_per_sample


def test_operations_of_a_sample_are_counted_forwards_and_backwards():
    model = nn.Sequential(nn.Linear(10, 20, bias=False), nn.Dropout(0.5), nn.Linear(20, 3, bias=False))
    inputs = torch.randn(4, 10)
    before = torch.get_rng_state()
    # Forward, gradient of both weights, gradient of the hidden layer: each two operations per weight.
    assert flops_per_sample(model, inputs) == 2 * (200 + 60) + 2 * (200 + 60) + 2 * 60
    assert model.training
    assert all(each.grad is None for each in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)  # no random number was drawn


def test_a_model_that_does_not_take_one_sample_is_not_counted():
    class Fussy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            if len(x) < 2:
                raise ValueError("two at least")
            return self.layer(x)

    assert flops_per_sample(Fussy(), torch.randn(4, 2)) is None


def test_mfu_needs_a_known_peak(monkeypatch: pytest.MonkeyPatch):
    assert meters.peak_flops("NVIDIA H200", "bf16") == pytest.approx(989e12, rel=0.001)
    assert meters.peak_flops("a GPU that nobody knows", "bf16") is None
    there = Meters(torch.device("cpu"), "bf16", flops=1e9)
    assert there.mfu(1000.0) is None
    assert there.joules() is None
    monkeypatch.setattr(there, "_peak", 1e13)
    assert there.mfu(1000.0) == pytest.approx(0.1)
