"""The course's functions against a real Slurm, and the same command on this machine with torchrun."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from forked.process import PYTHON
from launch.conftest import Bench

from vivace.errors import UserError
from vivace.launch import notebook


def test_lists_give_their_product_logs_are_found_and_the_queue_is_followed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(bench.folder)
    Path("hello.py").write_text("import sys; print(sys.argv[1:]); print('oops', file=sys.stderr)\n")
    Path("python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{bench.folder}:{bench.env['PATH']}")
    more = {"name": "demo", "time_max": "00:05:00", "cluster": "testbed"}
    jobids = notebook.gpu_jobs_submitter("hello.py 'a b'", n_gpu=[1, 2], **more)
    jobids += notebook.gpu_jobs_submitter(["hello.py c"], n_gpu=[1, 2], requeue=False, **more)
    signalled = ["--signal=" in Path(f"slurm/demo-00{number}/demo.slurm").read_text() for number in (1, 2, 3, 4)]
    assert signalled == [True, True, False, False]
    assert all(isinstance(job, str) for job in jobids)
    assert "batch job 1: 2 GPUs distributed on 1 nodes with 2 tasks" in capsys.readouterr().out
    notebook.display_slurm_queue("demo", timestep=0.2)
    assert "Done!" in capsys.readouterr().out
    assert [bench.end({"job_id": job}) for job in jobids] == ["COMPLETED"] * 4
    (log,) = notebook.search_log(contains=[int(jobids[1])])  # as the slides write it
    assert re.fullmatch(rf"\./slurm/log/demo@JZ_{jobids[1]}_1nodes_2tasks_[\d_-]+\.out", log)
    assert Path(log).read_text() == "['a b']\n" * 2
    both = notebook.search_log("demo", int(jobids[3]), with_err=True)
    assert [len(files) for files in both.values()] == [1, 1]
    assert Path(both["stderr"][0]).read_text().count("oops\n") == 2
    assert both[0] == both["stderr"][0] == notebook.search_log(contains=[jobids[3]], with_err=True)[0]
    assert notebook.search_log(contains=jobids[::-1]) == [*notebook.search_log(name="demo")][::-1]
    assert len(notebook.search_log(name="demo")) == 4
    assert notebook.search_log(name="other") == []


def test_the_accounts_suffix_tells_the_partition():
    # idr_pytools knew V100 and A100 only: an H100 account got 10 cores and no constraint.
    assert notebook._target(None, "xyz@h100", None).cores_per_gpu == 24
    assert notebook._target(None, "xyz@a100", None).gpus_per_node == 8
    assert notebook._target(None, "xyz@v100", "gpu_p2").gpus_per_node == 8
    assert notebook._modules("pytorch-gpu/py3/2.6.0", notebook._target(None, "x@a100", None)) == (
        "arch/a100",
        "pytorch-gpu/py3/2.6.0",
    )
    with pytest.raises(UserError, match="has a space"):
        notebook.gpu_jobs_submitter("x.py", name="a b", account="x@a100")


def test_the_local_launcher_runs_ranks_with_torchrun_and_keeps_the_exit_code(tmp_path: Path):
    program = """import os, sys
# One write: unbuffered, print() makes one a word, and those of two ranks mix.
os.write(1, f"{os.environ['RANK']} {os.environ['WORLD_SIZE']} {sys.argv[1:]}\\n".encode())
sys.exit(int(sys.argv[2]))
"""
    (tmp_path / "train.py").write_text(program)
    for wanted in (0, 3):
        words = [
            "--launcher",
            "local",
            "--gpus",
            "2",
            "--json",
            "--",
            PYTHON,
            "train.py",
            "$(x) y",
            str(wanted),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "vivace", "submit", *words],
            cwd=tmp_path,
            env=environment(PYTHONPATH=str(Path(__file__).parents[2])),
            capture_output=True,
            text=True,
            timeout=600,
        )
        (record,) = json.loads(done.stdout)
        assert (done.returncode == 0) == (wanted == 0)
        assert record["state"] == ("completed" if wanted == 0 else "failed")
        lines = Path(record["stdout"]).read_text().splitlines()
        both = [f"{rank} 2 ['$(x) y', '{wanted}']" for rank in (0, 1)]
        # torchrun ends the other rank when one fails, perhaps before it has written.
        assert sorted(lines) == both if wanted == 0 else lines and set(lines) <= set(both)


def test_a_machine_without_slurm_says_so(tmp_path: Path):
    env = environment(PYTHONPATH=str(Path(__file__).parents[2]), PATH="/nonexistent")
    words = [sys.executable, "-m", "vivace", "submit", "--cluster", "jean-zay-a100", "--", "true"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert "Slurm is not on this machine" in done.stderr
    assert "--launcher local" in " ".join(done.stderr.split())
    assert list(tmp_path.rglob("job.sh")) == []
    done = subprocess.run(
        [*words[:-2], "--dry-run", "--", "true"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.startswith("#!/bin/bash")
