"""Pinned memory: found when batches are copied to the GPU from pageable memory; then the loader pins them."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement
from practices.loaders import loader

from vivace.practices.pin_memory import find
from vivace.records.measurement import Copies

PAGEABLE = Copies(kind="Memcpy HtoD (Pageable -> Device)", per_step=2, ms_per_step=6.0, mib_per_step=147.0)
PINNED = PAGEABLE.model_copy(update={"kind": "Memcpy HtoD (Pinned -> Device)"})
COPIES = {"phases": {"copy": 8.0}, "profile": {"copies": (PAGEABLE,)}}


def test_found_when_the_copied_memory_is_pageable():
    found = find(measurement(**COPIES, loaders=(loader(),)))
    assert found is not None
    assert found.exposed_ms == 8.0
    assert found.evidence == {"copy_ms": 8.0, "pageable_mib_per_step": 147.0, "pin_memory": False}
    assert found.where == ("train.py", 12)


@pytest.mark.parametrize(
    "present",
    [
        {**COPIES, "loaders": (loader(pin_memory=True),)},
        {**COPIES, "profile": {"copies": (PINNED,)}, "loaders": (loader(),)},
        {**COPIES, "loaders": ()},  # whatever is copied, no loader made it
        {**COPIES, "phases": {"copy": 0.2}, "loaders": (loader(),)},
        {**COPIES, "on_gpu": False, "loaders": (loader(),)},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(1, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(TensorDataset(torch.ones(8, 1)), 2)
pinned = []
for (row,) in loader:
    pinned.append(row.is_pinned())
    model(row.to(device)).sum().backward()
    optimizer.step()
print(json.dumps({"pin_memory": loader.pin_memory, "pinned": pinned}))
"""


def test_without_a_gpu_it_says_so_and_changes_nothing(tmp_path: Path):
    done = run_with(SCRIPT, ["pin_memory"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {"pin_memory": "there is no GPU to copy to"}
    assert done.printed == {"pin_memory": False, "pinned": [False] * 4}


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_batches_are_pinned(tmp_path: Path):
    done = run_with(SCRIPT, ["pin_memory"], tmp_path)
    assert done.told == {"pin_memory": "applied: loaders pin their batches"}
    assert done.printed == {"pin_memory": True, "pinned": [True] * 4}
