"""bf16 autocast: found where 32-bit products take the time and the device has bf16 units; applied around the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import CPU, V100, measurement

from vivace.practices.bf16 import find, worth_trying
from vivace.records.measurement import Flops

ROLES = {"matmul": 60.0, "elementwise": 30.0}


def test_found_when_products_run_in_fp32():
    found = find(measurement(flops={"fp32": 10**12}, roles=ROLES))
    assert found is not None
    # Products faster by the ratio of the peaks and a quarter more, memory-bound kernels with half the bytes.
    assert found.exposed_ms == pytest.approx(60 * (1 - 66.9 / 989.4 / 1.25) + 30 / 2)


def test_tf32_leaves_more_than_half_of_the_products_time():
    found = find(measurement(flops={"tf32": 10**12}, roles=ROLES))
    assert found is not None
    assert found.exposed_ms == pytest.approx(60 * (1 - 494.7 / 989.4 / 1.25) + 30 / 2)


def test_recurrent_layers_on_tensor_cores_are_not_priced():
    """Measured: an LSTM is no faster in bf16 than in TF32, its products are too small (public_scripts.csv, char_lm)."""
    counted = {"model": 10**12, "hardware": 10**12, "by_type": {"tf32": 10**12}}
    in_tf32 = measurement(roles={"matmul": 90.0}).model_copy(
        update={"flops": Flops(**counted, recurrent=counted["by_type"])}
    )
    assert find(in_tf32) is None
    half = Flops(**counted, recurrent={"tf32": 5 * 10**11})
    found = find(in_tf32.model_copy(update={"flops": half}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(45 * (1 - 494.7 / 989.4 / 1.25))
    full = {"fp32": 10**12}  # without tensor cores there is a lot to win
    in_fp32 = Flops(**{**counted, "by_type": full}, recurrent=full)
    assert find(in_tf32.model_copy(update={"flops": in_fp32})) is not None


@pytest.mark.parametrize(
    "present",
    [
        {"flops": {"bf16": 10**12}},
        {"flops": {"fp32": 10**12}, "structure": {"autocast": "bfloat16"}},
        {"flops": {"fp32": 10**12}, "gpu": V100},  # no bf16 units: fp16 is the answer there
        {"flops": {"fp32": 10**12}, "on_gpu": False},  # a CPU without bf16 units
        {"flops": {"fp32": 10**12}, "roles": {"matmul": 2.0}},  # the GPU does something else
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


def test_a_cpu_with_bf16_units_is_found_and_one_without_may_only_be_tried():
    without = measurement(on_gpu=False)
    with_units = measurement(on_gpu=False, cpu=CPU.model_copy(update={"has_amx": True, "has_bf16": True}))
    assert find(without) is None
    assert find(with_units) is not None
    assert worth_trying(without) == ("bf16",)
    assert worth_trying(measurement()) == ()


SCRIPT = """
import contextlib, json, sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
    def forward(self, x):
        self.inside = str(self.body(x).dtype)
        return {"y": self.body(x)}
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    with AUTOCAST:
        output = model(torch.ones(2, 4))["y"]
    output.sum().backward()
    optimizer.step()
print(json.dumps({
    "inside": model.inside, "output": str(output.dtype), "weight": str(model.body.weight.dtype),
    "gradient": str(model.body.weight.grad.dtype), "keys": list(model.state_dict()),
}))
"""


def test_products_are_bf16_and_what_the_script_holds_stays_fp32(tmp_path: Path):
    done = run_with(SCRIPT.replace("AUTOCAST", "contextlib.nullcontext()"), ["bf16"], tmp_path)
    assert done.told == {"bf16": "applied: bfloat16 autocast around Net"}
    assert done.printed == {
        "inside": "torch.bfloat16",
        "output": "torch.float32",
        "weight": "torch.float32",
        "gradient": "torch.float32",
        "keys": ["body.weight", "body.bias"],
    }


def test_a_script_with_its_own_autocast_is_left_alone(tmp_path: Path):
    done = run_with(SCRIPT.replace("AUTOCAST", 'torch.autocast("cpu", dtype=torch.float16)'), ["bf16"], tmp_path)
    assert done.told == {"bf16": "the script already runs this model under autocast"}
    assert done.printed["inside"] == "torch.float16"


def test_a_model_that_returns_its_loss_keeps_its_logits_as_they_are(tmp_path: Path):
    """Casting them back would cost gigabytes of traffic that nobody asked for; in evaluation they are cast."""
    script = """
import json, torch
class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        logits = self.layer(x)
        return logits, logits.float().sum()
model = WithLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    logits, loss = model(torch.ones(2, 4)); loss.backward(); optimizer.step()
with torch.no_grad():
    evaluated, _ = model(torch.ones(2, 4))
print(json.dumps([str(logits.dtype), str(loss.dtype), str(evaluated.dtype)]))
"""
    assert run_with(script, ("bf16",), tmp_path).printed == ["torch.bfloat16", "torch.float32", "torch.float32"]
