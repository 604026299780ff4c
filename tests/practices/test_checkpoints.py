"""Checkpoints of the script load with practices in place, and those saved with practices load without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from practices.changed import WITHOUT_CPP, run_with

MODEL = """
import json, os, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
    def forward(self, x):
        return x + self.norm(self.conv(x)).relu()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 4, 1), nn.Sequential(*[Block() for _ in range(3)])
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))
def train(loaded, kind):
    torch.manual_seed(0)
    model = Net()
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
    if os.path.exists(loaded):
        state = torch.load(loaded, weights_only=True)
        model.load_state_dict(state["model"], strict=True)
        optimizer.load_state_dict(state["optimizer"])
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 3, 6, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
"""
SCRIPT = (
    MODEL
    + """
losses, state = train("../KIND.pt", "KIND")
torch.save(state, "changed.pt")
print(json.dumps(losses))
"""
)
PLAIN: dict[str, Any] = {}
exec(MODEL, PLAIN)  # without practices, in this process

WORDS = [
    ("bf16", "AdamW"),
    ("fp16", "AdamW"),
    ("pure_bf16", "AdamW"),
    ("channels_last", "AdamW"),
    ("checkpointing", "AdamW"),
    ("fused_optimizer", "AdamW"),
    ("foreach_optimizer", "RMSprop"),
    ("compile", "AdamW"),
]


@pytest.mark.parametrize(("word", "kind"), WORDS)
def test_checkpoints_load_both_ways(word: str, kind: str, tmp_path: Path):
    first, plain = PLAIN["train"]("none", kind)
    torch.save(plain, tmp_path / f"{kind}.pt")
    before = WITHOUT_CPP if word == "compile" else ""
    done = run_with(before + SCRIPT.replace("KIND", kind), [word], tmp_path / "changed")
    assert done.told[word].startswith("applied"), done.told
    last, back = PLAIN["train"](tmp_path / "changed" / "changed.pt", kind)
    changed = torch.load(tmp_path / "changed" / "changed.pt", weights_only=True)
    assert list(changed["model"]) == list(plain["model"]) == list(back["model"])
    assert changed["model"]["blocks.0.norm.num_batches_tracked"] == 6
    # A state that was not taken over would start from the loss of the initial weights again.
    assert first[0] > first[-1] > done.printed[-1] > last[-1]
