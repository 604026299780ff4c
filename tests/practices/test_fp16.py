"""fp16 with loss scaling: found on Volta and Turing only; gradients stay true, a step that overflows is left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from practices.changed import run_ranks, run_with
from practices.evidence import A100, V100, measurement

from vivace.practices.fp16 import find
from vivace.tune.trials import TrialSettings, run_trial

FP32 = {"flops": {"fp32": 10**12}, "roles": {"convolution": 60.0, "norm": 30.0}}


def test_found_on_volta_when_products_run_in_fp32():
    found = find(measurement(gpu=V100, **FP32))
    assert found is not None
    assert found.exposed_ms == pytest.approx(60 * (1 - 15.7 / 125 / 1.25) + 30 / 2)


@pytest.mark.parametrize(
    "present",
    [
        {**FP32, "gpu": A100},  # bf16 is the answer there
        {**FP32, "gpu": V100, "structure": {"autocast": "float16"}},
        {"gpu": V100, "flops": {"fp16": 10**12}},
        {**FP32, "gpu": V100.model_copy(update={"compute_capability": "6.0"})},  # Pascal has no tensor cores
        {**FP32, "on_gpu": False},
        {**FP32, "gpu": V100, "roles": {"convolution": 1.0}},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


# Two micro-batches a step, weights regularised by hand, a parameter of no module, an input that wants a gradient,
# a gradient penalty by autograd.grad, clipping: everything that could see a scaled gradient.
SCRIPT = """
import gc, json, torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x):
        h = self.first(x)
        self.inside = str(h.dtype)
        return self.second(h.relu())
model = Net()
loose = nn.Parameter(torch.ones(()))
optimizer = torch.optim.SGD([*model.parameters(), loose], 0.01, momentum=0.9)
seen = []
for step in range(STEPS):
    optimizer.zero_grad()
    for micro in range(2):
        x = torch.randn(5, 4, requires_grad=True)
        output = model(x)
        (slope,) = torch.autograd.grad(output.sum(), model.second.bias, retain_graph=True)
        loss = (output * loose).square().mean() + 0.1 * model.first.weight.square().sum()
        (loss * FACTOR).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    before = model.first.weight.detach().clone()
    gradient = model.first.weight.grad.clone()
    optimizer.step()
    seen.append({
        "norm": norm.item(), "gradient": gradient[0].tolist(), "input": x.grad[0].tolist(), "slope": slope.tolist(),
        "moved": not torch.equal(before, model.first.weight), "weight": model.first.weight[0].tolist(),
        "loose": loose.item(), "left out": model.first.weight.grad is None,
    })
scales = [o.scale for o in gc.get_objects() if type(o).__name__ == "Fp16"]
print(json.dumps({"seen": seen, "inside": model.inside, "output": str(output.dtype), "scales": scales,
                  "keys": list(model.state_dict())}))
"""


def script(steps: int = 3, factor: str = "1.0") -> str:
    return SCRIPT.replace("STEPS", str(steps)).replace("FACTOR", factor)


def test_gradients_are_true_wherever_the_script_looks(tmp_path: Path):
    plain = run_with(script(), [], tmp_path / "plain").printed
    done = run_with(script(), ["fp16"], tmp_path / "fp16")
    assert done.told == {"fp16": "applied: float16 autocast around Net"}
    assert (done.printed["inside"], done.printed["output"]) == ("torch.float16", "torch.float32")
    assert done.printed["keys"] == plain["keys"]
    assert done.printed["scales"] == [65536.0]
    for ours, theirs in zip(done.printed["seen"], plain["seen"], strict=True):
        assert ours["moved"]
        for name in ("gradient", "input", "slope", "norm", "weight", "loose"):
            assert ours[name] == pytest.approx(theirs[name], rel=2e-2, abs=2e-3), name


def test_a_step_that_overflows_is_left_out_and_the_scale_halves(tmp_path: Path):
    """A loss near 1e35 times 65536 is beyond fp32: the gradients of that step are infinite, those after it are not."""
    done = run_with(script(4, "(1e35 if step == 1 else 1.0)"), ["fp16"], tmp_path)
    assert [step["left out"] for step in done.printed["seen"]] == [False, True, False, False]
    assert [step["moved"] for step in done.printed["seen"]] == [True, False, True, True]
    assert done.printed["scales"] == [32768.0]


SPARSE = """
import gc, json, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(100, 8, sparse=True), nn.Flatten(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
moved = []
for step in range(4):
    optimizer.zero_grad()
    before = model[0].weight.detach().clone()
    loss = model(torch.arange(32).view(8, 4)).square().mean()
    (loss * (1e36 if step == 1 else 1.0)).backward()
    sparse = model[0].weight.grad.is_sparse
    optimizer.step()
    moved.append(not torch.equal(before, model[0].weight))
print(json.dumps({"moved": moved, "sparse": sparse, "weight": model[0].weight[0].tolist()}))
"""


def test_sparse_gradients_are_true_and_looked_through_for_overflows(tmp_path: Path):
    done = run_with(SPARSE, ["fp16"], tmp_path / "fp16")
    plain = run_with(SPARSE.replace("step == 1", "False"), [], tmp_path / "plain").printed
    assert done.told == {"fp16": "applied: float16 autocast around Sequential"}
    assert done.printed["sparse"]
    assert done.printed["moved"] == [True, False, True, True]
    assert done.printed["weight"] == pytest.approx(plain["weight"], abs=0.02)  # one step less


FAILING = """
import json, torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
class Failing(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        raise RuntimeError("out of memory, say")
def slope():
    return torch.autograd.grad(model(torch.ones(4, 8)).mean(), model.weight)[0][0].tolist()
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
before = slope()
try:
    Failing.apply(model(torch.ones(4, 8))).mean().backward()
except RuntimeError as error:
    print(error)
print(json.dumps([before, slope()]))
"""


def test_gradients_after_a_backward_that_failed_are_true(tmp_path: Path):
    done = run_with(FAILING, ["fp16"], tmp_path)
    assert done.told == {"fp16": "applied: float16 autocast around Linear"}
    assert done.stdout.startswith("out of memory, say")
    assert done.printed == [[1.0] * 8, [1.0] * 8]


def test_a_gradient_without_elements_is_finite():
    import torch

    from vivace.practices.fp16 import _all_finite

    words = torch.nn.Embedding(5, 2, sparse=True)
    words(torch.empty(0, dtype=torch.long)).sum().backward()
    assert words.weight.grad is not None
    assert _all_finite([words.weight.grad, torch.ones(2)])


def test_the_scale_doubles_after_two_thousand_good_steps():
    import torch

    from vivace.practices.fp16 import Fp16

    change = Fp16()
    change.applied("by hand")
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(1999):
        change.before_step(optimizer)
    assert change.scale == 65536.0
    change.before_step(optimizer)
    assert change.scale == 131072.0


def test_a_script_with_its_own_scaler_is_left_alone(tmp_path: Path):
    text = 'import torch\nscaler = torch.amp.GradScaler("cpu")\n' + script()
    done = run_with(text, ["fp16"], tmp_path)
    assert done.told == {"fp16": "the script scales its losses itself (GradScaler)"}
    assert done.printed["inside"] == "torch.float32"


def test_a_scaler_that_is_switched_off_is_no_scaler(tmp_path: Path):
    text = 'import torch\nscaler = torch.amp.GradScaler("cpu", enabled=False)\n' + script()
    assert run_with(text, ["fp16"], tmp_path).told == {"fp16": "applied: float16 autocast around Net"}


RANKS = """
import json, os, sys, torch
from torch import nn
rank = int(os.environ["RANK"])
torch.distributed.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
gradients, left_out = [], []
for step in range(4):
    torch.manual_seed(10 * step + rank)
    optimizer.zero_grad()
    loss = model(torch.randn(5, 4)).square().mean()
    (loss * (1e35 if step == OVERFLOW and rank == 1 else 1.0)).backward()
    gradients.append(model.module[0].weight.grad[0].tolist())
    optimizer.step()
    left_out.append(model.module[0].weight.grad is None)
print(json.dumps({"gradients": gradients, "left out": left_out, "weight": model.module[0].weight.tolist()}))
torch.distributed.destroy_process_group()
sys.stdout.flush(); os._exit(0)  # gloo's threads may abort a Python that ends (pytorch issue 190489)
"""


def test_under_ddp_gradients_are_true_and_ranks_leave_the_same_steps_out(tmp_path: Path):
    plain = run_ranks(RANKS.replace("OVERFLOW", "None"), [], tmp_path / "plain")[0].printed
    done = [rank.printed for rank in run_ranks(RANKS.replace("OVERFLOW", "1"), ["fp16"], tmp_path / "fp16")]
    assert done[0]["left out"] == done[1]["left out"] == [False, True, False, False]
    assert done[0]["weight"] == done[1]["weight"]
    assert done[0]["gradients"][0] == pytest.approx(plain["gradients"][0], rel=2e-2, abs=2e-3)


@pytest.mark.usefixtures("forked_scripts")
def test_a_measurement_sees_the_loss_as_the_script_has_it(tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(script(20))
    settings = TrialSettings(steps=4, warmup_steps=4, grad_norms=True)
    command = [sys.executable, str(path)]
    plain = run_trial(command, [], tmp_path / "plain", settings, lambda *_: None, lambda _: None).measurement
    fp16 = run_trial(command, ["fp16"], tmp_path / "fp16", settings, lambda *_: None, lambda _: None).measurement
    assert plain is not None
    assert fp16 is not None
    assert str(fp16.practices["fp16"]) == "applied: float16 autocast around Net"
    assert fp16.losses == pytest.approx(plain.losses, rel=1e-2)
    assert list(fp16.gradient_norms.values()) == pytest.approx(list(plain.gradient_norms.values()), rel=2e-2)
