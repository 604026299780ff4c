"""Two ranks on one GPU, over gloo: whether it works, and not how fast (NCCL refuses two ranks on a GPU)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import VIVACE, environment

SCRIPT = """
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.use_deterministic_algorithms(True)
torch.backends.cudnn.deterministic = True
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(70, 3, 8, 8), torch.randint(0, 5, (70,)))
body = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2))
net = nn.Sequential(*body, nn.Linear(288, 5)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for epoch in range(2):
    net.train()
    for x, y in DataLoader(data, 16, shuffle=True, pin_memory=True):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        print("loss", loss.item(), "norm", norm.item())
    net.eval()
    with torch.no_grad():
        print("right", sum((net(x.cuda()).argmax(1) == y.cuda()).sum().item() for x, y in DataLoader(data, 16)))
torch.save(net.state_dict(), "net.pt")
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mode", ["ddp", "zero1"])
def test_two_ranks_share_a_gpu_over_gloo(tmp_path: Path, mode: str):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "train.py"]
    words = [*VIVACE, "run", "--ranks", "2", "--with", mode, "--no-prove", "--", *command]
    env = environment(CUDA_VISIBLE_DEVICES="0", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    alone, split = (
        subprocess.run(each, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=env)
        for each in (command, words)
    )
    assert alone.returncode == 0, alone.stderr
    assert split.returncode == 0, split.stderr
    assert "split over 2 ranks" in split.stderr
    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location("scale_equality", root / "benchmarks" / "scale_equality.py")
    assert spec is not None
    assert spec.loader is not None
    equality = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(equality)
    found = equality.difference(alone.stdout, split.stdout)
    assert found is not None, split.stdout
    assert found < 1e-9
