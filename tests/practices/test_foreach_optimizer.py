"""foreach: found where an optimizer updates tensor by tensor on a GPU; set for every torch class that knows it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from practices.changed import run_with
from practices.evidence import measurement

from vivace.practices.foreach_optimizer import find
from vivace.records.structure import Optimizer, Spot

OFF = Optimizer(name="RMSprop", has_foreach=True, foreach=False, tensors=148, where=Spot(file="train.py", line=7))
OWN = Optimizer(name="Lamb", tensors=148)


@pytest.mark.parametrize(("optimizer", "applies"), [(OFF, True), (OWN, False)])
def test_found_when_tensors_are_updated_one_by_one(optimizer: Optimizer, applies: bool):
    found = find(measurement(phases={"optimizer": 12.0}, structure={"optimizers": (optimizer,)}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(12.0)
    assert (found.why_not is None) == applies


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        (OFF.model_copy(update={"foreach": None}), {}),  # torch takes it by itself on a GPU
        (OFF.model_copy(update={"foreach": True}), {}),
        (OFF.model_copy(update={"name": "AdamW", "has_fused": True, "fused": True, "foreach": False}), {}),
        (OWN.model_copy(update={"tensors": 4}), {}),
        (OFF, {"on_gpu": False}),
        (OFF, {"phases": {"optimizer": 1.0}}),
    ],
)
def test_not_found_when_present_or_of_no_use(optimizer: Optimizer, more: dict):
    m = measurement(**{"phases": {"optimizer": 12.0}, **more}, structure={"optimizers": (optimizer,)})
    assert find(m) is None


SCRIPT = """
import json, torch
printed = {}
for name in NAMES:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    optimizer = getattr(torch.optim, name)(model.parameters(), MORE)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
    printed[name] = [optimizer.param_groups[0].get("foreach"), model[0].weight.flatten().tolist()]
print(json.dumps(printed))
"""
KNOWS = [
    "SGD",
    "Adam",
    "AdamW",
    "Adagrad",
    "Adadelta",
    "Adafactor",
    "Adamax",
    "ASGD",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
]


def test_every_class_that_knows_foreach_gets_it_and_does_the_same(tmp_path: Path):
    script = SCRIPT.replace("NAMES", repr(KNOWS)).replace("MORE", "lr=0.01, foreach=False")
    plain = run_with(script, [], tmp_path / "plain").printed
    done = run_with(script, ["foreach_optimizer"], tmp_path / "foreach")
    assert done.told == {"foreach_optimizer": "applied: SGD(foreach=True)"}
    for name in KNOWS:
        assert plain[name][0] is False
        assert done.printed[name][0] is True, name
        assert done.printed[name][1] == pytest.approx(plain[name][1], rel=1e-4), name


def test_the_list_of_classes_is_torchs_own():
    """A class that learns foreach in a later torch shows up here."""
    import inspect

    knows = {
        name
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and "foreach" in inspect.signature(kind).parameters
    }
    assert knows == set(KNOWS)


@pytest.mark.parametrize(
    ("names", "more", "why"),
    [
        (["AdamW"], "lr=0.01, fused=True", "AdamW already updates many tensors at once"),
        (["LBFGS"], "lr=0.01", "the script never made a part that it changes"),
    ],
)
def test_what_it_cannot_change_it_leaves_alone(names: list[str], more: str, why: str, tmp_path: Path):
    script = SCRIPT.replace("NAMES", repr(names)).replace("MORE", more).replace("optimizer.step()", STEP)
    assert run_with(script, ["foreach_optimizer"], tmp_path).told == {"foreach_optimizer": why}


STEP = "optimizer.step(lambda: model(torch.ones(2, 4)).square().sum())"
