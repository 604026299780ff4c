"""Probes are put into a job like practices; the one for A/A runs must leave it as it is."""

from __future__ import annotations

from pathlib import Path

from practices.changed import run_with

SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for inputs, in DataLoader(TensorDataset(torch.randn(32, 4)), 8, shuffle=True):
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
"""


def test_nothing_applies_and_changes_no_loss(tmp_path: Path):
    with_nothing, plain = run_with(SCRIPT, ["probe:nothing"], tmp_path / "a"), run_with(SCRIPT, [], tmp_path / "b")
    assert with_nothing.told == {"probe:nothing": "applied: nothing is changed"}
    assert with_nothing.printed == plain.printed
    assert len(plain.printed) == 4
