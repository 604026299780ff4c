"""``vivace run --with``: the user's command, changed from outside, and otherwise its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import VIVACE, environment
from forked.process import PYTHON
from report.made import made_proof

SCRIPTS = Path(__file__).parent / "scripts"
TWO_LOADERS = (PYTHON, str(SCRIPTS / "two_loaders.py"))
PLAIN = (PYTHON, str(SCRIPTS / "plain.py"))


def test_output_and_exit_code_are_the_commands_own(vivace):
    done = vivace("run", "--with", "channels_last,fused_optimizer", "--", *PLAIN, "--exit", "5")
    assert done.code == 5
    assert done.out.count("step ") == 8
    assert "True" in done.out  # the weights are channels-last from the first step on
    assert "fused_optimizer applied: AdamW(fused=True)" in done.err
    record = json.loads((done.folder / "run.json").read_text())
    assert record["state"] == "failed"
    assert record["exit_code"] == 5
    assert record["practices"] == ["fused_optimizer", "channels_last"]


def test_what_does_not_apply_says_why_and_is_left_out(vivace_here):
    done = vivace_here("run", "--with", "workers=2,pin_memory,bf16", "--", *PLAIN)
    assert done.code == 0
    assert "workers=2 does not apply: the script never made a part that it changes" in done.err
    assert "bf16 applied" in done.err


def test_a_command_that_deletes_the_runs_folder_keeps_its_exit_code(vivace):
    done = vivace("run", "--with", "fused_optimizer", "--", *PLAIN, "--delete", "vivace-runs")
    assert done.code == 0, done.err
    assert "the command deleted vivace-runs/plain-001" in done.err
    assert "no training step was seen" not in done.err
    assert json.loads((done.folder / "run.json").read_text())["state"] == "completed"


EXITS_85 = (sys.executable, "-S", "-c", "import sys; sys.exit(85)")  # 85: start me again


def run_in_shell(script: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """``script`` starts ``"$@"``, which is ``vivace run`` of the command."""
    words = [sys.executable, "-m", "vivace", "run", "--with", "fused_optimizer", "--", *command]
    return subprocess.run(
        ["bash", "-c", script, "bash", *words],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_record_that_cannot_be_written_does_not_cost_the_exit_code(tmp_path: Path):
    """A full disk made a 2 of the 85 that asks the job script to requeue. Here no file may have a byte."""
    done = run_in_shell('ulimit -f 0; exec "$@"', tmp_path, *EXITS_85)
    assert done.returncode == 85, done.stderr
    assert "the record of this run could not be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_under_the_log_does_not_cost_the_exit_code(tmp_path: Path):
    assert run_in_shell('exec "$@" 2>/dev/full', tmp_path, *EXITS_85).returncode == 85


def test_a_working_folder_that_is_deleted_is_one_sentence(tmp_path: Path):
    program = "import os, shutil, sys; shutil.rmtree(os.getcwd()); sys.exit(85)"
    (tmp_path / "during").mkdir()
    during = run_in_shell('exec "$@"', tmp_path / "during", sys.executable, "-S", "-c", program)
    assert during.returncode == 85, during.stderr
    assert "the command deleted" in during.stderr
    before = run_in_shell('mkdir gone; cd gone; rmdir ../gone; exec "$@"', tmp_path, *EXITS_85)
    assert before.returncode == 2
    assert "the working folder no longer exists: it was deleted" in before.stderr
    for done in (during, before):
        assert "Traceback" not in done.stderr


def test_strict_makes_it_an_error(vivace_here):
    done = vivace_here("run", "--strict", "--with", "workers=2", "--", *PLAIN)
    assert done.code == 2
    assert "workers=2 does not apply" in done.err


def test_strict_fails_where_vivace_is_kept_out_of_the_process(vivace_here):
    done = vivace_here("run", "--strict", "--with", "fused_optimizer", "--", PLAIN[0], "-I", *PLAIN[1:])
    assert done.code == 2
    assert "vivace: fused_optimizer does not apply (--strict)" in done.err


def test_strict_waits_for_the_part_that_matters(vivace_here):
    """The validation loader has its worker already; the training loader gets one."""
    done = vivace_here("run", "--strict", "--with", "workers=1", "--", *TWO_LOADERS)
    assert done.code == 0, done.err
    assert "done 3" in done.out
    assert "workers=1 applied: 1 workers" in done.err


@pytest.mark.parametrize(("words", "steps"), [("workers=1", "0"), ("workers=1,ddp_options", "1")])
def test_strict_where_too_few_steps_came_to_decide_is_told_at_the_end(vivace_here, words: str, steps: str):
    done = vivace_here("run", "--strict", "--with", words, "--", *TWO_LOADERS, "--steps", steps)
    assert done.code == 2
    assert f"done {steps}" in done.out
    assert f"vivace: {words.split(',')[-1]} does not apply (--strict)" in done.err
    record = json.loads((done.folder / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == ("failed", 2)
    assert sorted(path.name for path in done.folder.iterdir()) == ["run.json"]


def test_a_tune_that_kept_nothing_is_told_so(vivace_here, tmp_path: Path):
    (tmp_path / "tuned-001").mkdir()
    made_proof(practices=()).save(tmp_path / "tuned-001" / "proof.json")
    done = vivace_here("run", "--with", "@tuned-001", "--", *PLAIN)
    assert done.code == 0
    assert "the tune in tuned-001 kept nothing: the command runs unchanged" in done.err
    assert "no training step was seen" not in done.err


def test_checkpoints_load_with_and_without(vivace_here, tmp_path: Path):
    """Each practice that touches a model by itself: tests/practices/test_checkpoints.py."""
    words = "bf16,channels_last,fused_optimizer"
    with_, without = str(tmp_path / "with.pt"), str(tmp_path / "without.pt")
    assert vivace_here("run", "--with", words, "--", *PLAIN, "--save", with_).code == 0
    command = [*PLAIN, "--load", with_, "--save", without]
    plain = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    back = vivace_here("run", "--with", words, "--", *PLAIN, "--load", without)
    assert back.code == 0, back.err
    saved = torch.load(with_, weights_only=True)["model"]
    assert list(saved) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert all(t.dtype == torch.float32 for t in saved.values())


def test_it_works_under_torchrun(vivace_here):
    launcher = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = vivace_here("run", "--with", "bf16,fused_optimizer", "--", *launcher, str(SCRIPTS / "two_ranks.py"))
    assert done.code == 0, done.err
    assert "rank 0 dtype torch.float32" in done.out
    assert "rank 1 dtype torch.float32" in done.out
    assert "bf16 applied: bfloat16 autocast around DistributedDataParallel" in done.err
    assert done.err.count("bf16 applied") == 1


def test_signals_reach_the_training(tmp_path: Path):
    """Slurm signals what it started: vivace. The training must hear it."""
    command = [*VIVACE, "run", "--with", "fused_optimizer", "--", *PLAIN, "--wait-for-signal"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "waiting" in line:
            break
    os.kill(process.pid, signal.SIGUSR1)
    lines += process.stdout.readlines()
    process.wait(600)
    assert process.returncode == 0
    assert "got ['usr1']\n" in lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bf17", "did you mean bf16?"),
        ("", "no practice to apply"),
        ("bf16=3", "takes no argument"),
        ("compile=fast", "is not one of"),
        ("no_syncs", "cannot be applied from outside"),
        ("@nowhere", "does not exist"),
        ("workers=2,workers=3", "asked for twice"),
    ],
)
def test_mistakes_are_sentences(vivace_here, words: str, message: str):
    done = vivace_here("run", "--with", words, "--", *PLAIN)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_folder_without_a_tune_names_one_that_has(vivace_here, tmp_path: Path):
    for name, file in (("a-001", "measurement.json"), ("a-002", "tune.json"), ("a-003", "proof.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    measured = vivace_here("run", "--with", f"@{tmp_path / 'a-001'}", "--", *PLAIN)
    assert measured.code == 2
    assert "contains no tune" in measured.err
    assert "a-003" in measured.err
    interrupted = vivace_here("run", "--with", f"@{tmp_path / 'a-002'}", "--", *PLAIN)
    assert "is not finished" in interrupted.err
    assert "--resume" in interrupted.err


def test_a_command_that_is_not_there(vivace_here):
    done = vivace_here("run", "--with", "bf16", "--", "no-such-program")
    assert done.code == 2
    assert "command not found" in done.err
    record = json.loads((done.folder / "run.json").read_text())
    assert record["state"] == "failed"
    assert record["ended_at"] is not None


def test_the_record_says_running_while_it_runs(tmp_path: Path):
    command = [*VIVACE, "run", "--with", "fused_optimizer", "--", *PLAIN, "--wait-for-signal"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "waiting" not in process.stdout.readline():
        time.sleep(0.01)
    (record,) = (tmp_path / "vivace-runs").glob("*/run.json")
    assert json.loads(record.read_text())["state"] == "running"
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    assert process.wait(600) == 143
    assert json.loads(record.read_text())["state"] == "cancelled"
