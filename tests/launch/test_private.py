"""Secrets reach the job but no file that others can read, and no name that others can see."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch.conftest import Bench

from vivace.launch.private import part, private_path, write_private

SECRET = "s3cret-value"


def test_what_is_no_secret_stays_in_the_script():
    shown = part({"LR": "0.1", "DATA": "/a b"}, ["python", "train.py", "--epochs", "3"])
    assert (shown.private, shown.hidden) == (None, ())
    assert shown.variables == {"LR": "0.1", "DATA": "/a b"}
    assert shown.command == "python train.py --epochs 3"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_the_shell_reads_back_any_secret_word(tmp_path_factory: pytest.TempPathFactory, secret: str):
    shown = part({"HF_TOKEN": secret}, ["python", "t.py", "--api-key", secret])
    script = tmp_path_factory.mktemp("job") / "job.sh"
    write_private(str(script), shown.private)
    source = f'. "$0"; printf "%s\\0" "$HF_TOKEN" {shown.command}'
    done = subprocess.run(["bash", "-c", source, str(private_path(str(script)))], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == [secret, "python", "t.py", "--api-key", secret]


def test_a_job_gets_its_secrets_and_shows_them_to_nobody(bench: Bench):
    says = "import os, sys; print(os.environ['HF_TOKEN'], os.environ['MY_KEY'], os.environ['LR'], sys.argv[1:])"
    record = bench.submit(
        "--env", f"HF_TOKEN={SECRET}", "--env", "MY_KEY=x", "--env", "LR=0.1",
        command=[sys.executable, "-c", says, f"--api-key={SECRET}"],
    )  # fmt: skip
    assert bench.end(record) == "COMPLETED", bench.err(record)
    assert bench.out(record).split() == [SECRET, "x", "0.1", f"['--api-key={SECRET}']"]
    folder = Path(record["script"]).parent
    private = folder / "job.private.sh"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    readable = [path for path in bench.folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    kept = {path.name for path in readable if SECRET in path.read_text(errors="replace")}
    assert kept <= {f"{record['job_id']}.out"}  # the job itself printed it there
    assert SECRET not in bench.cluster.show(record["job_id"])
    assert record["command"][-1] == "--api-key=***"


def test_a_secret_before_the_command_is_no_name(bench: Bench):
    words = [
        "bash",
        "-c",
        f"WANDB_API_KEY={SECRET} exec {sys.executable} -c 'import os; os.environ[\"WANDB_API_KEY\"]'",
    ]
    done = bench.vivace("submit", "--cluster", "testbed", "--dry-run", "--", *words)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "the command may be secret: kept in job.private.sh, which only you can read" in done.stderr
    assert "#SBATCH --job-name=bash" in done.stdout


def test_a_variable_without_a_value_is_passed_on_or_missed(bench: Bench):
    words = ["submit", "--cluster", "testbed", "--dry-run", "--env", "HOME", "--", "python", "t.py"]
    assert "export HOME=" in bench.vivace(*words).stdout
    words[5] = "NOT_SET_ANYWHERE"
    done = bench.vivace(*words)
    assert done.returncode == 2
    assert "--env NOT_SET_ANYWHERE has no value here" in done.stderr
