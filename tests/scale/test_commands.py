"""The commands that measure, with ``--ranks``: one training split over two processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Done
from forked.process import PYTHON

SCRIPT = """
import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(120, 8), torch.randint(0, 2, (120,))), batch_size=10, shuffle=True)
for epoch in range(50):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    open("losses.txt", "a").write(f"{loss.item()}\\n")
"""


def test_measure_on_ranks_counts_the_whole_batch_once(vivace: Callable[..., Done], tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = vivace("measure", "--ranks", "2", "--json", "--steps", "6", "--no-profile", "--", PYTHON, "train.py")
    record = done.record
    assert record["status"] == "complete", record["reason"]
    assert record["split"]
    assert record["practices"]["ddp"]["state"] == "applied"
    assert record["batch_size"] == record["global_batch_size"] == 10
    assert record["origin"]["command"] == [PYTHON, "train.py"]
    ranks = record["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert all(rank["phases_ms"]["communication"]["mean"] > 0 and rank["host_peak_gib"] > 0 for rank in ranks)
    # The share of communication is the mean over ranks, and only a part of it is waiting for the slowest.
    mean = sum(rank["phases_ms"]["communication"]["mean"] for rank in ranks) / 2
    assert abs(record["phases_ms"]["communication"]["mean"] / mean - 1) < 1e-3
    assert 0 <= record["waiting_for_ranks_ms"] < mean
    assert abs(2 * ranks[0]["samples_per_s"] / record["samples_per_s"] - 1) < 1e-9
