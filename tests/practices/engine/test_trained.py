"""Practices in a script that updates its parameters by hand: told after backward passes; optimizers' are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from practices.changed import run_with

# Plain SGD by hand. Prints the losses, which practices that are refused must not change.
BY_HAND = """
import json, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
inputs, labels = torch.randn(64, 16), torch.randint(4, (64,))
losses = []
for step in range(5):
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    {gradients}
    losses.append(loss.item())
print(json.dumps(losses))
"""
BACKWARD = """loss.backward()
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)"""
FUNCTIONAL = """gradients = torch.autograd.grad(loss, list(model.parameters()))
    for p, g in zip(model.parameters(), gradients):
        p.data.add_(g, alpha=-0.1)"""
NO_OPTIMIZER = "the script has no optimizer: it updates its parameters by hand"


@pytest.mark.parametrize("gradients", [BACKWARD, FUNCTIONAL], ids=["backward", "grad"])
def test_what_became_of_practices_is_told_without_an_optimizer(tmp_path: Path, gradients: str):
    script = BY_HAND.format(gradients=gradients)
    words = ("bf16", "fused_optimizer", "foreach_optimizer")
    done = run_with(script, words, tmp_path / "with")
    assert done.told["bf16"].startswith("applied")
    assert done.told["fused_optimizer"] == done.told["foreach_optimizer"] == NO_OPTIMIZER
    assert len(done.printed) == 5


def test_fp16_is_refused_before_it_scales_a_loss(tmp_path: Path):
    """An overflow of scaled gradients would go into the weights. Only the first forward may have been in fp16."""
    script = BY_HAND.format(gradients=BACKWARD)
    done, own = run_with(script, ("fp16",), tmp_path / "with"), run_with(script, (), tmp_path / "without")
    assert done.told["fp16"].startswith("the script updates its parameters by hand")
    assert done.printed == pytest.approx(own.printed, rel=1e-3)


def test_strict_stops_a_script_without_an_optimizer_too(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "train.py").write_text(BY_HAND.format(gradients=BACKWARD))
    done = vivace_here("run", "--strict", "--with", "fused_optimizer", "--", sys.executable, "train.py")
    assert done.code == 2
    assert NO_OPTIMIZER in done.err
    assert done.out == ""


def test_run_applies_practices_without_an_optimizer(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "train.py").write_text(BY_HAND.format(gradients=BACKWARD))
    done = vivace_here("run", "--with", "bf16", "--", sys.executable, "train.py")
    assert done.code == 0
    assert len(json.loads(done.out)) == 5
    assert "✓ vivace: bf16" in done.err
