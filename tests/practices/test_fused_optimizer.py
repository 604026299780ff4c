"""Fused optimizers: found by the optimizer's share of a step; set as the optimizer is made; checkpoints stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import measurement

from vivace.practices.fused_optimizer import find
from vivace.records.structure import Optimizer, Spot

PLAIN = Optimizer(name="AdamW", has_fused=True, tensors=148, device="cuda", where=Spot(file="train.py", line=7))


def test_found_when_the_optimizer_takes_time():
    found = find(measurement(phases={"optimizer": 12.0}, structure={"optimizers": (PLAIN,)}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(12.0)
    assert found.where == ("train.py", 7)
    assert found.by_hand == "torch.optim.AdamW(…, fused=True)"


@pytest.mark.parametrize(
    ("optimizer", "optimizer_ms"),
    [
        (PLAIN.model_copy(update={"fused": True}), 12.0),
        (PLAIN.model_copy(update={"foreach": False}), 12.0),  # the script chose
        (PLAIN.model_copy(update={"has_fused": False, "name": "RMSprop"}), 12.0),
        (PLAIN, 1.0),  # 1 % of a step
    ],
)
def test_not_found_when_present_or_of_no_use(optimizer: Optimizer, optimizer_ms: float):
    m = measurement(phases={"optimizer": optimizer_ms}, structure={"optimizers": (optimizer,)})
    assert find(m) is None


SCRIPT = """
import json, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = MAKE
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
group = optimizer.param_groups[0]
print(json.dumps({"fused": group.get("fused"), "lr": group["lr"], "weight": model.weight.tolist()}))
"""


@pytest.mark.parametrize(
    "make",
    [
        "torch.optim.AdamW(model.parameters(), lr=0.1)",
        "torch.optim.SGD(model.parameters(), 0.1, 0.9)",  # positional
        "torch.optim.Adam([{'params': model.weight}, {'params': [model.bias], 'lr': 0.2}], lr=0.1)",
    ],
)
def test_the_optimizer_is_fused_and_does_the_same(make: str, tmp_path: Path):
    plain = run_with(SCRIPT.replace("MAKE", make), [], tmp_path / "plain").printed
    done = run_with(SCRIPT.replace("MAKE", make), ["fused_optimizer"], tmp_path / "fused")
    name = make.split("(")[0].rsplit(".", 1)[-1]
    assert done.told == {"fused_optimizer": f"applied: {name}(fused=True)"}
    assert (done.printed["fused"], done.printed["lr"]) == (True, 0.1)
    for row, plain_row in zip(done.printed["weight"], plain["weight"], strict=True):
        assert row == pytest.approx(plain_row, rel=1e-5)


SPARSE = """
import json, torch
from torch import nn
torch.manual_seed(0)
words, head = nn.Embedding(9, 4, sparse=True), nn.Linear(4, 1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = words, head
    def forward(self, x):
        return self.head(self.words(x))
model = Net()
optimizers = MAKE
for step in range(3):
    for optimizer in optimizers:
        optimizer.zero_grad()
    model(torch.arange(5)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
print(json.dumps({"fused": [o.param_groups[0].get("fused") for o in optimizers], "weight": words.weight.tolist()}))
"""


@pytest.mark.parametrize("kind", ["SGD", "Adagrad"])
def test_an_optimizer_of_sparse_gradients_steps_as_the_script_made_it(kind: str, tmp_path: Path):
    script = SPARSE.replace("MAKE", f"[torch.optim.{kind}(model.parameters(), lr=0.1)]")
    plain = run_with(script, [], tmp_path / "plain").printed
    done = run_with(script, ["fused_optimizer"], tmp_path / "fused")
    assert done.told == {"fused_optimizer": f"gradients are sparse, which a fused {kind} does not take"}
    assert done.printed == plain


@pytest.mark.parametrize("order", [1, -1])
def test_beside_it_an_optimizer_of_dense_gradients_is_fused(order: int, tmp_path: Path):
    make = f"[torch.optim.SGD(words.parameters(), 0.1), torch.optim.AdamW(head.parameters())][::{order}]"
    done = run_with(SPARSE.replace("MAKE", make), ["fused_optimizer"], tmp_path)
    assert done.printed["fused"] == [None, True][::order]
    assert done.told["fused_optimizer"].startswith("applied: ")


def test_a_script_that_chose_keeps_its_choice(tmp_path: Path):
    make = "torch.optim.SGD(model.parameters(), 0.1, foreach=False)"
    done = run_with(SCRIPT.replace("MAKE", make), ["fused_optimizer"], tmp_path)
    assert done.told == {"fused_optimizer": "the script chooses the implementation of SGD itself"}
    assert done.printed["fused"] is None
