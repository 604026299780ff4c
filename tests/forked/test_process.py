"""A forked process is like a fresh one to the script and to vivace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from forked import process
from forked.process import ForkedProcess
from practices.changed import run_with

from vivace.protocol.request import VARIABLE

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
    forks = []
    monkeypatch.setattr(process, "ForkedProcess", lambda *args: forks.append(args) or ForkedProcess(*args))
    here = run_with(SCRIPT, ["bf16"], tmp_path)
    assert len(forks) == 1
    monkeypatch.setattr(process, "can_fork", lambda *_: False)
    there = run_with(SCRIPT, ["bf16"], tmp_path)
    assert len(forks) == 1
    assert here.printed == there.printed
    assert here.printed["early"] is False
    assert here.told == there.told == {"bf16": here.told["bf16"]}
    assert here.told["bf16"].startswith("applied")
    assert here.stderr == there.stderr == "said\n"


def fork(text: str, folder: Path, timeout_s: float = 600, *arguments: str) -> subprocess.CompletedProcess:
    (folder / "script.py").write_text(text)
    return process.run([sys.executable, str(folder / "script.py"), *arguments], folder, environment(), timeout_s)


def test_its_error_and_its_exit_code_come_back(tmp_path: Path):
    assert fork("import torch; raise SystemExit(7)", tmp_path).returncode == 7
    assert fork("import torch, os; os.kill(os.getpid(), 9)", tmp_path).returncode == -9
    done = fork("import torch\ntorch.zeros(2, 3) @ torch.zeros(2)", tmp_path)
    assert done.returncode == 1
    assert f'File "{tmp_path}/script.py", line 2' in done.stderr


def test_it_gets_its_arguments(tmp_path: Path):
    assert fork("import sys; print(sys.argv[1:])", tmp_path, 200, "--lr", "0.1").stdout == "['--lr', '0.1']\n"


def test_a_module_runs_as_the_main_program(tmp_path: Path):
    (tmp_path / "which.py").write_text("import sys; print(__name__, __spec__.name, sys.argv, sys.path[0])")
    command = [sys.executable, "-m", "which", "--lr"]
    forked = process.run(command, tmp_path, environment(), 600)
    fresh = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=600)
    assert forked.stdout == fresh.stdout == f"__main__ which ['{tmp_path}/which.py', '--lr'] {tmp_path}\n"


def test_one_that_does_not_end_is_ended_and_the_next_one_runs(tmp_path: Path):
    with pytest.raises(subprocess.TimeoutExpired):
        fork("import time; time.sleep(1000)", tmp_path, 0.5)
    assert fork("print(1)", tmp_path).stdout == "1\n"


def test_what_could_tell_a_difference_gets_a_fresh_one(tmp_path: Path):
    (tmp_path / "train.py").write_text("import torch")
    (tmp_path / "compiled.py").write_text("import torch; torch.compile(abs)")

    def forks(*words: str, **variables: str) -> bool:
        return process.can_fork([sys.executable, *words], environment(**variables), tmp_path)

    assert forks("train.py", VIVACE_HOME="elsewhere", PYTHONPATH="elsewhere")
    assert not forks("train.py", OMP_NUM_THREADS="2")
    assert not forks("train.py", TORCH_LOGS="+dynamo")
    assert not forks("train.py", **{VARIABLE: '{"practices": ["compile=regional"]}'})
    assert not forks("compiled.py")
    assert not forks("not_there.py")
    assert forks("-m", "vivace.demo.classifier")
    assert not forks("-m", "no_such_module")
    assert not forks("-c", "import torch")
    assert not process.can_fork(["torchrun", "train.py"], environment(), tmp_path)
