"""A forked process is like a fresh one to the script and to vivace."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import environment
from forked import process
from forked.process import PYTHON, ForkedProcess
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


def start(python: str, text: str, folder: Path, *arguments: str, **variables: str) -> subprocess.Popen:
    (folder / "script.py").write_text(text)
    command = [python, *arguments, "script.py", "--lr"]
    return subprocess.Popen(
        command, cwd=folder, env=environment(**variables), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_the_stand_in_for_python_runs_a_script_as_python_does(tmp_path: Path):
    forked, fresh = (start(python, SCRIPT, tmp_path) for python in (PYTHON, sys.executable))
    (out, err), (same_out, same_err) = forked.communicate(), fresh.communicate()
    assert json.loads(out) == json.loads(same_out)
    assert err == same_err == "said\n"
    assert forked.returncode == fresh.returncode == 0


IN_MEMORY = "import sys; sys.stdout.write(str(len(sys.modules) > 500))\n"  # which a fresh Python would have to import


def test_what_the_stand_in_cannot_fork_is_a_fresh_process(tmp_path: Path):
    def forks(text: str, *arguments: str, **variables: str) -> bool:
        return start(PYTHON, text, tmp_path, *arguments, **variables).communicate()[0] == "True"

    assert forks(IN_MEMORY, MASTER_PORT="1", SLURM_PROCID="0")
    assert forks(IN_MEMORY, "-u", KINETO_LOG_LEVEL="99")
    assert not forks(IN_MEMORY, "-O")
    assert not forks(IN_MEMORY + "# torch.compile", "-u")
    assert not forks(IN_MEMORY, OMP_NUM_THREADS="2")


WAITING = """
import signal, sys, time
def handler(number, _frame):
    print("got", number)
    sys.exit(number)
signal.signal(signal.SIGUSR1, handler)
print("ready")
time.sleep(600)
"""


@pytest.mark.parametrize(("number", "code"), [(10, 10), (15, -15)])
def test_signals_reach_the_script_of_a_stand_in_and_its_end_comes_back(number: int, code: int, tmp_path: Path):
    process = start(PYTHON, WAITING, tmp_path, "-u")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"  # at once: unbuffered
    process.send_signal(number)
    assert process.communicate()[0] == ("got 10\n" if code > 0 else "")
    assert process.returncode == code


def test_a_stand_in_that_is_killed_takes_the_script_with_it(tmp_path: Path):
    process = start(PYTHON, WAITING.replace('"ready"', "__import__('os').getpid()"), tmp_path, "-u")
    assert process.stdout is not None
    script = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    assert select.select([script], [], [], 600)[0]
    os.close(script)


def test_torchrun_starts_its_ranks_by_the_stand_in(tmp_path: Path):
    text = "import os, sys\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'], len(sys.modules) > 500)"
    process = start(PYTHON, text, tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert sorted(process.communicate()[0].splitlines()) == ["0 2 True", "1 2 True"]
    assert process.returncode == 0


LEAVES_ONE_BEHIND = """
import os, subprocess, sys
sys.path[:0] = TESTS
from conftest import environment
from forked.process import PYTHON
open("waits.py", "w").write("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
process = subprocess.Popen([PYTHON, "waits.py"], env=environment(), stdout=subprocess.PIPE, start_new_session=True)
print(process.stdout.readline().decode())
"""


def test_no_script_outlives_the_tests(tmp_path: Path):
    tests = [str(Path(__file__).parents[1])]
    session = subprocess.run(
        [sys.executable, "-c", LEAVES_ONE_BEHIND.replace("TESTS", repr(tests))], cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert session.returncode == 0, session.stderr
    pid = int(session.stdout)
    deadline = time.monotonic() + 600
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
