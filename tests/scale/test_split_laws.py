"""A training of any shape, split over ranks, is the training of one process: batches of any size, also smaller than
the number of ranks, layers and losses of several kinds, in all modes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed.fsdp  # here, and not in every rank
import torch.nn as nn
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale.two_ranks import run_forked

from vivace.scale.install import install
from vivace.scale.keeps import Keeps
from vivace.scale.place import ScalePlace

CASES = st.fixed_dictionaries({
    "batches": st.lists(st.integers(1, 9), min_size=2, max_size=4),
    "width": st.integers(1, 7),
    "length": st.integers(1, 4),
    "kind": st.sampled_from(["linear", "norm", "conv", "lstm", "attention"]),
    "loss": st.sampled_from(["mean", "sum", "none", "square", "pairs"]),
    "dtype": st.sampled_from(["float64", "float64", "float32", "bfloat16"]),
    "dropout": st.booleans(),
})  # fmt: skip


class Net(nn.Module):
    def __init__(self, kind: str, width: int, dropout: bool) -> None:
        super().__init__()
        self.kind, self.dropout = kind, dropout
        self.first, self.last = nn.Linear(3, 2 * width), nn.Linear(2 * width, 5)
        self.norm = nn.BatchNorm1d(2 * width) if kind == "norm" else nn.Identity()
        self.conv = nn.Conv1d(2 * width, 2 * width, 3, padding=1) if kind == "conv" else nn.Identity()
        self.lstm = nn.LSTM(2 * width, 2 * width, batch_first=True) if kind == "lstm" else None
        self.attention = nn.MultiheadAttention(2 * width, 2, batch_first=True) if kind == "attention" else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(self.norm(torch.tanh(self.first(x)).transpose(1, 2))).transpose(1, 2)
        if self.lstm is not None:
            x = self.lstm(x)[0]
        if self.attention is not None:
            x = self.attention(x, x, x, need_weights=False)[0]
        if self.dropout:
            x = F.dropout(x, 0.3, self.training)
        return self.last(x.mean(1))


def loss_of(how: str, out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if how == "square":
        return (out - target[:, None]).square().mean()
    if how == "pairs":  # couples all samples of the batch
        return (out @ out.t()).tanh().mean() + F.cross_entropy(out, target)
    if how == "none":
        return F.cross_entropy(out, target, reduction="none").pow(2).mean()
    return F.cross_entropy(out, target, reduction=how)


def train(case: dict[str, Any]) -> list[float]:
    torch.manual_seed(0)
    model = Net(case["kind"], case["width"], case["dropout"]).to(getattr(torch, case["dtype"]))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    numbers = []
    for size in case["batches"]:
        size = max(size, 2) if case["kind"] == "norm" and case["length"] == 1 else size  # torch refuses one value
        x = torch.randn(size, case["length"], 3).to(model.last.weight.dtype)
        out = model(x)
        loss = loss_of(case["loss"], out, torch.randint(0, 5, (size,)))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        numbers += [loss.item(), float(norm), float(out.double().std(correction=0))]
    model.eval()
    numbers.append(model(torch.ones(4, case["length"], 3, dtype=model.last.weight.dtype)).double().sum().item())
    return [*numbers, *(p.detach().double().sum().item() for p in model.parameters()), torch.rand(1).item()]


def on_ranks(world: int, keeps: Keeps, case: dict[str, Any]) -> list[list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "answers").mkdir()

        def work(rank: int) -> list[float]:
            os.chdir(folder)
            if world > 1:
                place = ScalePlace(rank, world, f"file:{folder}", folder=f"{folder}/answers")
                install(place, keeps, lambda *_: None)
            return train(case)

        return run_forked(world, work)


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(CASES, st.integers(2, 3), st.sampled_from(list(Keeps)))
def test_a_split_training_is_that_of_one_process(case: dict[str, Any], world: int, keeps: Keeps):
    (alone,) = on_ranks(1, keeps, case)
    expected = torch.tensor(alone, dtype=torch.float64)
    close = {"float64": 1e-11, "float32": 1e-4, "bfloat16": 0.1}[case["dtype"]]
    for numbers in on_ranks(world, keeps, case):
        torch.testing.assert_close(torch.tensor(numbers, dtype=torch.float64), expected, rtol=close, atol=close)
        assert numbers[-1] == alone[-1]  # every rank's generator is where that of one process is
