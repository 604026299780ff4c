"""Pure bf16: advised where memory is the limit; weights, gradients and optimizer are bf16, batch norms are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import V100, measurement

from vivace.errors import UserError
from vivace.practices.engine.registry import parse_words
from vivace.practices.pure_bf16 import PRACTICE, find
from vivace.records.structure import Optimizer

LARGE = {
    "memory": {"allocated_peak_gib": 130.0, "reserved_peak_gib": 138.0},
    "trainable_parameters": 4 * 2**30,  # 64 GiB with AdamW
    "structure": {"parameter_dtypes": {"float32": 4 * 2**30}, "optimizers": (Optimizer(name="AdamW"),)},
}


def test_found_when_weights_and_optimizer_fill_the_card():
    found = find(measurement(**LARGE))
    assert found is not None
    assert found.exposed_ms == 0
    assert found.evidence["weights_gradients_optimizer_gib"] == 64.0


@pytest.mark.parametrize(
    "present",
    [
        {"memory": {}},  # there is room
        {"trainable_parameters": 2**28},  # activations fill the card
        {"structure": {"parameter_dtypes": {"bfloat16": 4 * 2**30}}},
        {"gpu": V100, "memory": {"alloc_retries": 9}},
        {"on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**{**LARGE, **present})) is None


def test_it_is_never_taken_for_harmless_and_not_with_autocast():
    assert PRACTICE.risk == "algorithmic"
    with pytest.raises(UserError, match="exclude each other"):
        parse_words("bf16,pure_bf16")


SCRIPT = """
import json, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.tied = self.head.weight
    def forward(self, x, ids):
        self.inputs = [str(x.dtype), str(ids.dtype)]
        return {"y": self.head(self.norm(self.conv(x)).mean((2, 3)))}
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
before = [id(p) for p in model.parameters()]
losses = []
for _ in range(6):
    optimizer.zero_grad()
    output = model(torch.ones(2, 3, 8, 8), ids=torch.ones(2, dtype=torch.long))["y"]
    loss = (output - 1).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
head, state = model.head.weight, optimizer.state[model.head.weight]
print(json.dumps({
    "weight": str(head.dtype), "gradient": str(head.grad.dtype), "state": str(state["exp_avg"].dtype),
    "norm": [str(model.norm.weight.dtype), str(model.norm.running_mean.dtype)],
    "inputs": model.inputs, "output": str(output.dtype), "same": before == [id(p) for p in model.parameters()],
    "down": losses[-1] < losses[0],
}))
"""


def test_everything_but_batch_norms_is_bf16(tmp_path: Path):
    done = run_with(SCRIPT, ["pure_bf16"], tmp_path)
    assert done.told == {"pure_bf16": "applied: weights, gradients and optimizer of Net"}
    assert done.printed == {
        "weight": "torch.bfloat16",
        "gradient": "torch.bfloat16",
        "state": "torch.bfloat16",
        "norm": ["torch.float32", "torch.float32"],
        "inputs": ["torch.bfloat16", "torch.int64"],
        "output": "torch.float32",
        "same": True,
        "down": True,
    }


def test_a_model_without_fp32_weights_is_left_alone(tmp_path: Path):
    done = run_with(
        SCRIPT.replace("model = Net()", "model = Net().double()").replace(
            "torch.ones(2, 3, 8, 8)", "torch.ones(2, 3, 8, 8).double()"
        ),
        ["pure_bf16"],
        tmp_path,
    )
    assert done.told == {"pure_bf16": "Net has no fp32 weights"}
    assert (done.printed["weight"], done.printed["output"]) == ("torch.float64", "torch.float64")


def test_autocast_to_float32_does_not_cast_the_weights_back(tmp_path: Path):
    script = """
import json, torch
torch.set_autocast_enabled("cpu", True); torch.set_autocast_dtype("cpu", torch.float32)  # as a GPU's autocast does it
class Net(torch.nn.Sequential):
    def forward(self, x):
        y = super().forward(x)
        self.inside = str(y.dtype)
        return y
model = Net(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
print(json.dumps(model.inside))
"""
    done = run_with(script, ["pure_bf16"], tmp_path)
    assert done.told["pure_bf16"].startswith("applied")
    assert done.printed == "torch.bfloat16"
