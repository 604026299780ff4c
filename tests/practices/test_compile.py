"""torch.compile: found by memory-bound operators and idle time between kernels; compiled in place, names stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from practices.changed import WITHOUT_CPP, needs_gpu, run_with
from practices.evidence import measurement

from vivace.errors import UserError
from vivace.practices.compile import find
from vivace.practices.engine.registry import parse_words


def test_found_when_memory_bound_operators_take_time():
    found = find(measurement(roles={"matmul": 60.0, "elementwise": 20.0, "norm": 20.0}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.75 * 40)


def test_a_gpu_that_waits_for_launches_is_worth_cuda_graphs():
    found = find(measurement(roles={"matmul": 30.0, "elementwise": 10.0}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.75 * 10 + 60)
    assert found.setting == "compile=reduce-overhead"
    assert found.also_try == ("compile", "compile=max-autotune")


def test_where_it_does_not_they_are_tried_second():
    found = find(measurement(roles={"matmul": 60.0, "elementwise": 38.0}))
    assert found is not None
    assert found.setting is None
    assert found.also_try == ("compile=reduce-overhead", "compile=max-autotune")


def test_on_a_cpu_idle_time_is_not_counted():
    found = find(measurement(on_gpu=False, roles={"matmul": 60.0, "elementwise": 30.0}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.5 * 30)


@pytest.mark.parametrize(
    "present",
    [
        {"flags": {"compiled": True}, "roles": {"elementwise": 90.0}},
        {"input_shapes": 40, "roles": {"elementwise": 90.0}},  # each shape would be compiled
        {"roles": {"matmul": 98.0, "elementwise": 2.0}},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


def test_an_unknown_mode_is_the_users_mistake():
    with pytest.raises(UserError, match="'fastest' is not one of default, reduce-overhead"):
        parse_words("compile=fastest")


SCRIPT = """
import json, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x):
        return x + torch.nn.functional.gelu(self.layer(x)) * 2
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(*[Block() for _ in range(3)]), nn.Linear(8, 2))
WRAP
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).square().sum()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
from torch._dynamo.utils import counters
print(json.dumps({"losses": losses, "frames": counters["frames"]["ok"], "keys": list(model.state_dict())}))
"""

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++)")


@pytest.mark.parametrize(
    ("word", "says", "before"),
    [
        pytest.param("compile", "Sequential, default", "", marks=needs_compiler),
        ("compile=regional", "Sequential, regional: 3 blocks", WITHOUT_CPP),
    ],
)
def test_the_model_is_compiled_in_place(word: str, says: str, before: str, tmp_path: Path):
    plain = run_with(SCRIPT.replace("WRAP", ""), [], tmp_path / "plain").printed
    done = run_with(before + SCRIPT.replace("WRAP", ""), [word], tmp_path / "compiled")
    assert done.told == {word: f"applied: {says}"}
    assert plain["frames"] == 0
    assert done.printed["frames"] > 0
    assert done.printed["keys"] == plain["keys"]
    assert done.printed["losses"] == pytest.approx(plain["losses"], rel=1e-4)


def test_a_model_that_the_script_compiles_is_left_alone(tmp_path: Path):
    done = run_with(SCRIPT.replace("WRAP", 'model.compile(backend="eager")'), ["compile"], tmp_path)
    assert done.told == {"compile": "the script already compiles this model"}


GRAPHS = """
import json, torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)), nn.Linear(64, 8)
    def forward(self, x, y):
        logits = self.head(self.body(x))
        return logits, nn.functional.cross_entropy(logits, y)
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
data = [(torch.randn(32, 64).cuda(), torch.randint(0, 8, (32,)).cuda()) for _ in range(32)]
kept, seen = [], []
while data:
    losses = LOSSES
    kept += [loss.detach() for loss in losses]
    seen.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item())
    optimizer.step()
    optimizer.zero_grad(set_to_none=NONE)
print(json.dumps(seen + [loss.item() for loss in kept]))
"""
ACCUMULATED = "[(lambda loss: (loss.backward(), loss)[1])(model(*data.pop())[1]) for _ in range(4)]"
TWO_FORWARDS = "[model(*data.pop())[1], model(*data.pop())[1]]; sum(losses).backward()"


@needs_gpu
@pytest.mark.parametrize(("losses", "none"), [(ACCUMULATED, "True"), (ACCUMULATED, "False"), (TWO_FORWARDS, "True")])
def test_cuda_graphs_change_no_gradient_and_no_loss(losses: str, none: str, tmp_path: Path):
    script = GRAPHS.replace("LOSSES", losses).replace("NONE", none)
    plain = run_with(script, [], tmp_path / "plain").printed
    done = run_with(script, ["compile=reduce-overhead"], tmp_path / "graphs")
    assert done.told["compile=reduce-overhead"].startswith("applied")
    assert done.printed == pytest.approx(plain, rel=1e-3)


BUILT_IN = """
import json, torch
from torch import nn
from torch._dynamo.utils import counters
torch.manual_seed(0)
layers = {
    "sequence": lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)),
    "blocks": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 3),
}
model = layers["WHICH"]()
names = list(model.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(2, 4, 8)).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
same = names == list(model.state_dict())
print(json.dumps([counters["stats"]["unique_graphs"], same, loss.item()]))
"""


@pytest.mark.parametrize(("which", "word"), [("sequence", "compile"), ("blocks", "compile=regional")])
def test_a_model_of_built_in_layers_only_is_really_compiled(tmp_path: Path, which: str, word: str):
    """``nn.Sequential(...).compile()`` alone compiles nothing, and says nothing."""
    script = BUILT_IN.replace("WHICH", which)
    compiled = run_with(WITHOUT_CPP + script, [word], tmp_path / "compiled")
    graphs, same_names, loss = compiled.printed
    assert compiled.told[word].startswith("applied")
    assert 1 <= graphs <= 3
    assert same_names
    assert loss == pytest.approx(run_with(script, [], tmp_path / "plain").printed[2], rel=1e-4)
