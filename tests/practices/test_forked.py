"""A forked process is like a fresh one to the script and to vivace."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import environment
from practices import forked
from practices.changed import run_with

# What a script and a practice can see of the process they are in, and a short training.
SCRIPT = """
import json, os, sys
early = "torch" in sys.modules
import torch.nn as nn
import torch
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({
    "early": early, "main": [__name__, __file__, str(__spec__)], "argv": sys.argv, "path": sys.path,
    "folder": os.getcwd(),
    "environment": {k: v for k, v in os.environ.items() if not k.startswith("VIVACE_")}, "losses": losses,
    "torch": [torch.__spec__.name, torch.__file__, type(torch.__loader__).__name__], "threads": torch.get_num_threads(),
    "main_module": sys.modules["__main__"].__file__, "stdin": sys.stdin.read(),
}))
sys.stderr.write("said\\n")
"""


def test_it_sees_what_a_fresh_one_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here = run_with(SCRIPT, ["bf16"], tmp_path)
    assert (tmp_path / "stdout.txt").exists(), "run_with did not fork"
    monkeypatch.setattr(forked, "same_at_start", lambda _: False)
    there = run_with(SCRIPT, ["bf16"], tmp_path)
    assert here.printed == there.printed
    assert here.printed["early"] is False
    assert here.told == there.told == {"bf16": here.told["bf16"]}
    assert here.told["bf16"].startswith("applied")
    assert here.stderr == there.stderr == "said\n"


def test_its_error_and_its_exit_code_come_back(tmp_path: Path):
    for text, code in (("import torch; raise SystemExit(7)", 7), ("import torch, os; os.kill(os.getpid(), 9)", -9)):
        (tmp_path / "script.py").write_text(text)
        assert forked.run(tmp_path / "script.py", tmp_path, environment(), 60).returncode == code
    (tmp_path / "script.py").write_text("import torch\ntorch.zeros(2, 3) @ torch.zeros(2)")
    done = forked.run(tmp_path / "script.py", tmp_path, environment(), 60)
    assert done.returncode == 1
    assert f'File "{tmp_path}/script.py", line 2' in done.stderr


def test_one_that_does_not_end_is_ended_and_the_next_one_runs(tmp_path: Path):
    (tmp_path / "script.py").write_text("import time; time.sleep(1000)")
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(tmp_path / "script.py", tmp_path, environment(), 0.5)
    (tmp_path / "script.py").write_text("import json; print(json.dumps(1))")
    done = forked.run(tmp_path / "script.py", tmp_path, environment(), 60)
    assert json.loads(done.stdout) == 1


def test_variables_that_libraries_read_ask_for_a_fresh_one():
    assert forked.same_at_start(environment(VIVACE_INSIDE="{}", PYTHONPATH="elsewhere"))
    assert not forked.same_at_start(environment(OMP_NUM_THREADS="2"))
    assert not forked.same_at_start(environment(TORCH_LOGS="+dynamo"))
    assert not forked.same_at_start({k: v for k, v in environment().items() if k != "OMP_NUM_THREADS"})
