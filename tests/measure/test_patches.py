"""Functions of torch that vivace stands in for keep their names, and what they see around a model is told right."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import environment
from forked import process

from vivace.measure.inside.patches import modules, unseen_by_dynamo
from vivace.records.structure import Structure

SCRIPT = """
import pickle, sys, tempfile
import torch
from vivace.measure.inside.install import install
from vivace.protocol.request import ProcessRequest

install(ProcessRequest(folder=tempfile.mkdtemp()))
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
again = pickle.loads(pickle.dumps(model.__call__))
assert again(torch.ones(1, 2)).shape == (1, 3)
for function in (torch.autograd.grad, torch.autograd.backward, torch.distributed.all_reduce):
    assert pickle.loads(pickle.dumps(function)) is function, function
assert torch.autograd.grad.__name__ == "grad"
print("fine")
"""


def test_patched_functions_pickle(tmp_path: Path):
    (tmp_path / "pickles.py").write_text(SCRIPT)
    done = process.run([sys.executable, "pickles.py"], tmp_path, environment(), 600)
    assert done.stdout.strip() == "fine", done.stderr


def test_autocast_around_the_model_is_told_by_its_dtype():
    """A GPU's autocast to float32 is on and does nothing; another model under bf16 is mixed precision."""
    forwards = modules.Forwards()
    forwards.meet(torch.nn.Linear(2, 2))
    assert forwards.autocast is None
    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float32)
    try:
        forwards.meet(torch.nn.Linear(2, 2))
    finally:
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", before)
    assert forwards.autocast == "float32"
    assert not Structure(autocast="float32").mixed_precision
    with torch.autocast("cpu", dtype=torch.bfloat16):
        forwards.meet(torch.nn.Linear(2, 2))
    with torch.autocast("cpu", enabled=False):
        forwards.meet(torch.nn.Linear(2, 2))
    assert forwards.autocast == "bfloat16"
    assert Structure(autocast="bfloat16").mixed_precision


def test_a_torch_with_the_older_name_is_asked_to_skip_the_frame(monkeypatch: pytest.MonkeyPatch):
    """torch 2.4 to 2.6 have ``skip_code`` only."""
    skipped: list[object] = []
    monkeypatch.setattr(torch._C._dynamo, "eval_frame", SimpleNamespace(skip_code=skipped.append))

    def ours() -> None: ...

    assert unseen_by_dynamo(ours) is ours
    assert skipped == [ours.__code__]
