"""``submit --with``: what stands in the job's script, for any command, and what a task of a real job then runs."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch.conftest import ROOT, Bench
from launch.test_real_preemption import STEPS, losses, training

from vivace.errors import UserError
from vivace.launch.practised import practised, read_practices
from vivace.launch.request import JobRequest
from vivace.launch.script import Place, prepare, render
from vivace.launch.target import Target
from vivace.records.proof import Gain, Interval, Proof

PLACE = Place("runs/x-001/job.sh", "runs/x-001/%j.out", "runs/x-001/%j.err")

# Stands for `vivace run` where only words count: keeps to its contract, and says with what it was called.
STUB = """
import os, sys
assert sys.argv[1:3] == ["run", "--with"] and sys.argv[4] == "--", sys.argv
os.environ["WITH"] = sys.argv[3]
os.execvp(sys.argv[5], sys.argv[5:])
"""


def command_in(text: str) -> list[str]:
    return shlex.split(text.split('exec "$@"\' rank \\\n    ')[1].split(" &\nvivace_command=$!\n")[0])


def proof_of(practice: str) -> Proof:
    speedup = Interval(median=1.8, low=1.7, high=1.9)
    return Proof(command=("x",), speedup=speedup, practices=(Gain(practice=practice, risk="rounding"),), trials=())


def script_of(*command: str, **more: object) -> str:
    request = JobRequest(command=command, name="x", **more)  # type: ignore[arg-type]
    return render(prepare(request, Target(name="t", gpus_per_node=4)), PLACE)


@pytest.mark.parametrize(
    ("head", "vivace"),
    [
        ("python", ["python", "-m", "vivace"]),
        ("python3.12", ["python3.12", "-m", "vivace"]),
        ("/opt/my env/bin/python", ["/opt/my env/bin/python", "-m", "vivace"]),
        ("torchrun", ["vivace"]),
        ("bash", ["vivace"]),
        ("./python-train", ["vivace"]),
    ],
)
def test_the_python_of_the_command_runs_vivace_too(head: str, vivace: list[str]):
    words = command_in(script_of(head, "-u", "train.py", practices=("bf16", "channels_last")))
    assert words == [*vivace, "run", "--with", "bf16,channels_last", "--", head, "-u", "train.py"]


def test_in_a_container_vivace_runs_inside_it():
    text = script_of("python", "train.py", practices=("bf16",), container="my image.sif")
    assert "singularity exec --nv 'my image.sif' python -m vivace run --with bf16 -- python train.py" in text


@given(words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_any_words_arrive_unchanged(words: list[str]):
    if not words[0]:
        words[0] = "x"
    found = command_in(script_of(*words, practices=("a", "@/x y/$(z)")))
    assert found[-len(words) - 4 :] == ["run", "--with", "a,@/x y/$(z)", "--", *words]


def test_a_folder_becomes_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "runs" / "my proof").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert read_practices("bf16,@runs/my proof,") == ("bf16", f"@{tmp_path}/runs/my proof")


@pytest.mark.parametrize("wrong", ["", " , ", "@", "@nowhere"])
def test_what_cannot_be_read(wrong: str):
    with pytest.raises(UserError):
        read_practices(wrong)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("bf61", "there is no practice named 'bf61'"),
        ("tf32=yes", "takes no argument"),
        ("$(x)", "there is no practice named"),
        ("@here", "contains no tune"),
        ("@nowhere", "there is no such folder"),
    ],
)
def test_what_vivace_run_would_refuse_is_said_before_the_queue(
    vivace: Callable, tmp_path: Path, words: str, sentence: str
):
    (tmp_path / "here").mkdir()
    done = vivace("submit", "--cluster", "jean-zay-a100", "--with", words, "--dry-run", "--", "python", "x.py")
    assert done.code == 2
    assert sentence in " ".join(done.err.split())
    assert done.out == ""


def test_without_practices_nothing_is_added():
    assert practised(["python", "x.py"], []) == ("python", "x.py")


def test_dry_run_on_this_machine_goes_through_torchrun(vivace: Callable):
    done = vivace("submit", "--launcher", "local", "--gpus", "2", "--with", "bf16", "--dry-run", "--", "python", "x.py")
    words = shlex.split(done.out)
    assert words[-8:] == ["-m", "vivace", "run", "--with", "bf16", "--", "python", "x.py"]
    assert "--nproc-per-node=2" in words


def test_on_this_machine_torchrun_starts_vivace_run_on_every_rank(vivace: Callable, tmp_path: Path):
    command = [sys.executable, str(ROOT / "examples" / "preemptible.py"), "--steps", "2", "--checkpoint", "x.pt"]
    done = vivace("submit", "--launcher", "local", "--gpus", "2", "--with", "fused_optimizer", "--", *command)
    assert done.code == 0, done.err
    (folder,) = (tmp_path / "vivace-runs").iterdir()
    assert sorted(losses((folder / "stdout.log").read_text())) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    record = json.loads((folder / "preemptible-001" / "run.json").read_text())
    assert record["told"]["fused_optimizer"]["state"] == "applied"


def test_every_rank_of_a_real_job_gets_the_practices_and_the_words(bench: Bench):
    (bench.folder / "stub" / "vivace").mkdir(parents=True)
    (bench.folder / "stub" / "vivace" / "__main__.py").write_text(STUB)
    program = bench.folder / "stub" / "bin" / "vivace"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {bench.folder}/stub/vivace/__main__.py "$@"\n')
    program.chmod(0o755)
    best = bench.folder / "runs" / "best one"
    best.mkdir(parents=True)
    proof_of("channels_last").save(best / "proof.json")
    says = "import json,os,sys; print(json.dumps([os.environ['WITH'], os.environ['RANK'], *sys.argv[1:]]))"
    words = ["a b", "$(touch pwned)", "--", "'"]
    common = ("--with", "bf16,@runs/best one", "--gpus", "2", "--env", f"PYTHONPATH={bench.folder}/stub")
    by_python = bench.submit(*common, command=[sys.executable, "-c", says, *words])
    by_name = bench.submit(
        *common,
        *("--env", f"PATH={program.parent}:{os.environ['PATH']}"),
        command=["env", sys.executable, "-c", says, *words],
    )
    practices = ["bf16", f"@{bench.folder}/runs/best one"]
    for record in (by_python, by_name):
        assert record["practices"] == practices
        assert bench.end(record) == "COMPLETED", bench.err(record)
        said = sorted(json.loads(line) for line in bench.out(record).splitlines())
        assert said == [[",".join(practices), rank, *words] for rank in ("0", "1")]
    assert not list(bench.folder.rglob("pwned"))


def test_vivace_run_applies_them_on_every_rank_and_lets_slurms_signal_through(bench_with_names: Bench):
    """Interrupted and requeued under `vivace run`, the losses are those of a run that was left alone."""
    bench = bench_with_names
    proof_of("fused_optimizer").save(bench.folder / "proof.json")

    def send(name: str, plan: list[int]) -> dict:
        command = [sys.executable, *training(bench, name, plan)]
        return bench.submit("--name", name, "--with", "@proof.json", "--gpus", "2", command=command)

    alone, interrupted = send("alone", []), send("interrupted", [3])
    bench.cluster.wait("a step", lambda: "step 3 rank 0" in bench.out(interrupted))
    bench.cluster.run("scancel", "--signal=USR1", interrupted["job_id"])
    assert bench.end(alone) == "COMPLETED", bench.err(alone)
    assert bench.end(interrupted) == "COMPLETED", bench.err(interrupted)
    assert losses(bench.out(interrupted)) == losses(bench.out(alone))
    assert len(losses(bench.out(alone))) == 2 * STEPS
    assert "restarts 1" in bench.out(interrupted)
    assert bench.err(alone).count("fused_optimizer applied") == 1  # one rank tells
    (record,) = Path(alone["folder"]).glob("*/run.json")
    assert json.loads(record.read_text())["told"]["fused_optimizer"]["state"] == "applied"
