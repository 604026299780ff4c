"""bf16 autocast: found where 32-bit products take the time and the device has bf16 units; applied around the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import CPU, V100, measurement

from vivace.practices.bf16 import find, worth_trying
from vivace.records.structure import Recurrent

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


def test_each_arithmetic_is_priced_by_the_time_that_it_takes():
    """PyTorch's default: convolutions in TF32, the rest in full fp32, which takes most of the time."""
    found = find(measurement(flops={"tf32": 6 * 10**11, "fp32": 4 * 10**11}, roles={"matmul": 90.0}))
    assert found is not None
    in_fp32 = 90 * (4 / 66.9) / (4 / 66.9 + 6 / 494.7)
    saved = in_fp32 * (1 - 66.9 / 989.4 / 1.25) + (90 - in_fp32) * (1 - 494.7 / 989.4 / 1.25)
    assert found.exposed_ms == pytest.approx(saved)


LSTM = {"structure": {"recurrent": (Recurrent(name="LSTM", inputs=1024, hidden=1024),)}, "batch_size": 128}


def test_small_recurrent_layers_on_tensor_cores_are_not_priced():
    """Measured: an LSTM is no faster in bf16 than in TF32, its products are too small: public_scripts_trials.csv."""
    tf32, roles = {"tf32": 10**12}, {"matmul": 90.0}
    assert find(measurement(flops=tf32, recurrent=tf32, roles=roles, **LSTM)) is None
    half = find(measurement(flops=tf32, recurrent={"tf32": 5 * 10**11}, roles=roles, **LSTM))
    assert half is not None
    assert half.exposed_ms == pytest.approx(45 * (1 - 494.7 / 989.4 / 1.25))
    large = find(measurement(flops=tf32, recurrent=tf32, roles=roles, **{**LSTM, "batch_size": 1024}))
    assert large is not None
    assert large.exposed_ms == pytest.approx(90 * (1 - 494.7 / 989.4 / 1.25))
    fp32 = {"fp32": 10**12}  # without tensor cores there is a lot to win
    assert find(measurement(flops=fp32, recurrent=fp32, roles=roles, **LSTM)) is not None


def test_kernels_that_are_a_whole_layer_do_not_make_other_products_less():
    """Of 60 + 30 ms the recurrent kernels are seen: the other products took their 60."""
    both = {"flops": {"tf32": 10**12}, "recurrent": {"tf32": 10**11}, "roles": {"matmul": 60.0, "recurrent": 30.0}}
    found = find(measurement(**both, **LSTM))
    assert found is not None
    assert found.exposed_ms == pytest.approx(60 * (1 - 494.7 / 989.4 / 1.25))


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
    assert done.told == {"bf16": "the script already runs this model under float16 autocast"}
    assert done.printed["inside"] == "torch.float16"


FORMS = """
import contextlib, functools, json, warnings, torch
warnings.simplefilter("ignore")

@contextlib.contextmanager
def to_float32():
    "torch.autocast(dtype=float32), which is off on a CPU, as it is on a GPU: on, and without effect."
    before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    torch.set_autocast_enabled("cpu", True); torch.set_autocast_dtype("cpu", torch.float32)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled("cpu", before[0]); torch.set_autocast_dtype("cpu", before[1])

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x):
        x = self.body(x)
        self.inside = str(x.dtype)
        with torch.autocast("cpu", enabled=False):
            self.protected = str(self.head(x.float()).dtype)
        return x

class Decorated(Net):
    forward = torch.autocast("cpu", enabled=False)(Net.forward)
class Wrapped(Net):
    def __init__(self):
        super().__init__()
        self.forward = functools.wraps(self.forward)(torch.autocast("cpu", dtype=torch.float16)(self.forward))
class Temperature(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.eye(4))
    @torch.autocast("cpu", enabled=False)
    def forward(self, x):
        self.inside = str((x @ self.matrix).dtype)
        return x @ self.matrix

def train(model, context=contextlib.nullcontext, decorator=lambda f: f):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    @decorator
    def step():
        with context():
            output = model(torch.ones(2, 4))
        output.float().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return output
    for _ in range(3):
        output = step()
    return [model.inside, getattr(model, "protected", None), str(output.dtype)]

torch.manual_seed(0)
seen = {
    "float32": train(Net(), to_float32),
    "off": train(Net(), lambda: torch.autocast("cpu", enabled=False)),
    "old": train(Net(), lambda: torch.cpu.amp.autocast(enabled=False)),
    "step": train(Net(), decorator=torch.autocast("cpu", enabled=False)),
    "forward": train(Decorated()),
    "forward again": train(Decorated()),
    "loss": train(Temperature()),
    "float16": train(Net(), lambda: torch.autocast("cpu", dtype=torch.float16)),
    "float16 inside": train(Wrapped()),
}
# Around the whole loop: casts of weights must not outlive the optimizer's step.
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
with to_float32():
    for _ in range(3):
        output = model(torch.ones(2, 4))
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            fresh = torch.nn.functional.linear(torch.ones(2, 4), model.body.weight, model.body.bias).float()
        seen.setdefault("stale", []).append((output - fresh).abs().max().item())
        output.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
print(json.dumps(seen))
"""


def test_autocast_is_judged_by_its_dtype_and_whether_it_is_on(tmp_path: Path):
    done = run_with(FORMS, ["bf16"], tmp_path)
    assert done.told == {"bf16": "applied: bfloat16 autocast around Net, in place of the script's float32"}
    stood_in = ["torch.bfloat16", "torch.float32", "torch.float32"]  # what the model protects stays so
    for form in ("float32", "off", "old", "step", "forward", "forward again"):
        assert done.printed[form] == stood_in, form
    assert done.printed["loss"][0] == "torch.float32"
    for form in ("float16", "float16 inside"):
        assert done.printed[form] == ["torch.float16", "torch.float32", "torch.float16"], form
    assert done.printed["stale"] == [0.0, 0.0, 0.0]


def test_autocast_to_float32_is_no_mixed_precision():
    asked = {"flops": {"tf32": 10**12}, "roles": ROLES, "structure": {"autocast": "float32"}}
    assert find(measurement(**asked)) == find(measurement(flops={"tf32": 10**12}, roles=ROLES))
    assert worth_trying(measurement(on_gpu=False, structure={"autocast": "float32"})) == ("bf16",)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_model_in_float64_is_left_alone(name: str, tmp_path: Path):
    script = SCRIPT.replace("AUTOCAST", "contextlib.nullcontext()")
    done = run_with(script.replace("torch.manual_seed(0)", "torch.set_default_dtype(torch.float64)"), [name], tmp_path)
    assert done.told == {name: "Net has no fp32 weights"}
    assert done.printed["inside"] == done.printed["output"] == "torch.float64"


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_frozen_helper_without_fp32_weights_does_not_keep_it_from_the_model(name: str, tmp_path: Path):
    script = SCRIPT.replace("AUTOCAST", "contextlib.nullcontext()")
    helper = "helper = Net().double().requires_grad_(False)\nhelped = helper(torch.ones(2, 4).double())['y']\n"
    done = run_with(script.replace("for _ in", helper + "for _ in"), [name], tmp_path)
    assert done.told[name].endswith("autocast around Net")
    assert done.printed["output"] == "torch.float32"


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
