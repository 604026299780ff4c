"""DataParallel: found where it costs something; around one GPU it is looked through, and names stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement

from vivace.practices.ddp_not_dp import LookThrough, find
from vivace.records.structure import Optimizer, Spot, Wrapper


def wrapped(devices: int, tensors: int = 1000, name: str = "DataParallel", **fields):
    structure = {
        "wrappers": (Wrapper(name=name, options={"devices": devices}, where=Spot(file="train.py", line=7)),),
        "optimizers": (Optimizer(name="SGD", tensors=tensors),),
    }
    return measurement(structure=structure, **fields)


def test_over_several_gpus_it_is_priced_by_idle_and_communication():
    found = find(wrapped(4, roles={"matmul": 70.0}, profile={"communication_ms_per_step": 5.0}))
    assert found is not None
    assert found.exposed_ms == 35.0
    assert found.where == ("train.py", 7)
    assert found.why_not == "one process per GPU needs torchrun and a few lines"


def test_around_one_gpu_the_price_is_small():
    found = find(wrapped(1, roles={"matmul": 60.0}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(2.52)
    assert found.why_not is None


@pytest.mark.parametrize(
    "present",
    [
        {"devices": 4, "name": "DistributedDataParallel", "roles": {"matmul": 50.0}},
        {"devices": 1, "tensors": 60, "roles": {"matmul": 60.0}},  # 0.45 ms of 100
        {"devices": 1, "roles": {"matmul": 100.0}},  # the host is ahead of the GPU anyway
        {"devices": 0, "on_gpu": False},
    ],
)
def test_not_found_when_absent_or_of_no_cost(present: dict):
    assert find(wrapped(**present)) is None


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> LookThrough:
    monkeypatch.setattr(torch.nn.DataParallel, "forward", torch.nn.DataParallel.forward)  # put back after the test
    change = LookThrough()
    change.flags()
    change.flags()
    return change


class Echo(torch.nn.Module):
    def forward(self, *args, **kwargs):
        return args, kwargs


def test_around_one_gpu_the_module_is_called_with_the_very_same_inputs(change: LookThrough):
    wrapper = torch.nn.DataParallel(Echo())
    wrapper.device_ids = [0]
    marker = object()
    assert wrapper(marker, key=marker) == ((marker,), {"key": marker})  # DataParallel itself would scatter them
    assert change.done == "DataParallel around one GPU calls its module directly"


@pytest.mark.parametrize(
    ("devices", "inputs", "why"),
    [
        ([], (), "DataParallel without a GPU already calls its module directly"),
        ([0, 1], (), "DataParallel over 2 GPUs: one process per GPU needs torchrun and a few lines"),
        ([0], (torch.ones(1),), None),  # on the host: DataParallel copies it to the GPU
    ],
)
def test_what_must_be_scattered_is_left_to_dataparallel(devices: list, inputs: tuple, why: str | None):
    change = LookThrough()
    wrapper = torch.nn.DataParallel(Echo())
    wrapper.device_ids = devices
    assert not change._can_look_through(wrapper, inputs, {})
    assert change.refused == why


SCRIPT = """
import json, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.nn.DataParallel(torch.nn.Linear(4, 4).to(device), device_ids=[0] if device == "cuda" else None)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for _ in range(3):
    loss = model(torch.ones(2, 4, device=device)).square().sum()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"names": list(model.state_dict()), "losses": losses}))
"""


def test_without_a_gpu_there_is_nothing_to_look_through(tmp_path: Path):
    done = run_with(SCRIPT, ["ddp_not_dp"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {"ddp_not_dp": "DataParallel without a GPU already calls its module directly"}
    assert done.printed["names"] == ["module.weight", "module.bias"]


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_numbers_and_names_stay(tmp_path: Path):
    done = run_with(SCRIPT, ["ddp_not_dp"], tmp_path / "with")
    plain = run_with(SCRIPT, [], tmp_path / "without")
    assert done.told == {"ddp_not_dp": "applied: DataParallel around one GPU calls its module directly"}
    assert done.printed == plain.printed
    assert done.printed["names"] == ["module.weight", "module.bias"]
