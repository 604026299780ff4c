"""Functions of torch that vivace stands in for keep their names: what pickles without us pickles with us."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import environment

SCRIPT = """
import pickle, sys, tempfile
import torch
from vivace.measure.inside.install import install
from vivace.measure.inside.settings import Settings

install(Settings(folder=tempfile.mkdtemp()).to_text())
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
again = pickle.loads(pickle.dumps(model.__call__))
assert again(torch.ones(1, 2)).shape == (1, 3)
for function in (torch.autograd.grad, torch.autograd.backward, torch.distributed.all_reduce):
    assert pickle.loads(pickle.dumps(function)) is function, function
assert torch.autograd.grad.__name__ == "grad"
print("fine")
"""


def test_patched_functions_pickle(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment(), cwd=tmp_path
    )
    assert done.stdout.strip() == "fine", done.stderr
