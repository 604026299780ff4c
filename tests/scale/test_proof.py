"""``vivace run --ranks`` proves, before it trains, that the ranks train as one process does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from conftest import Done
from forked.process import PYTHON

SCRIPT = """
import os, sys
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
loader = DataLoader(TensorDataset(torch.randn(90, 8), torch.randint(0, 3, (90,))), 9, shuffle=True)
factor = 1.1 if len(sys.argv) > 1 and "VIVACE_WORLD" in os.environ else 1.0  # what a wrong split would do
os.makedirs("saved")
for epoch in range(2):
    for x, y in loader:
        loss = factor * F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save(net.state_dict(), "saved/net.pt")
    print("epoch", epoch, flush=True)
"""


def test_an_equal_training_is_proved_once_and_leaves_nothing_behind(vivace: Callable[..., Done], tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["run", "--ranks", "2", "--with", "zero1", "--", PYTHON, "train.py"]
    first = vivace(*words)
    assert first.code == 0, first.err
    assert "2 ranks with zero1: equal to one process at step 1 to " in first.err
    assert first.out.splitlines() == ["epoch 0", "epoch 1"]
    (record,) = tmp_path.glob("vivace-runs/train-00*/run.json")
    equality = json.loads(record.read_text())["equality"]
    assert equality["verdict"] == "equal"
    assert equality["gradient"] < 1e-5
    assert len(equality["losses"]) >= 10
    assert equality["parameters"] == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved", "train.py", "vivace-runs"]


def test_another_training_ends_before_it_begins(vivace: Callable[..., Done], tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = vivace("run", "--ranks", "2", "--", PYTHON, "train.py", "wrong")
    assert done.code == 1
    assert "on 2 ranks with ddp this is another training than in one process" in done.err
    assert "gradients at the first step are +10 % longer" in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert done.out == ""
    assert not (tmp_path / "saved").exists()
