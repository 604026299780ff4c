"""Submitting to a real Slurm: what arrives in the job, how jobs end, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from launch.conftest import Bench


def test_two_nodes_get_one_rank_a_gpu_with_torchruns_variables(bench: Bench):
    says = "import os; print('|'.join(os.environ[n] for n in ['RANK','LOCAL_RANK','WORLD_SIZE','SLURMD_NODENAME']))"
    record = bench.submit("--gpus", "8", "--name", "shape", command=[sys.executable, "-c", says])
    assert (record["nodes"], record["gpus"], record["state"]) == (2, 8, "queued")
    assert bench.end(record) == "COMPLETED"
    expected = [f"{rank}|{rank % 4}|8|node{rank // 4 + 1}" for rank in range(8)]
    assert sorted(bench.out(record).split()) == expected
    shown = bench.cluster.show(record["job_id"])
    assert "CPUs/Task=2" in shown
    assert "Features=v100-32g" in shown


def test_words_and_names_are_quoted_and_never_executed(bench: Bench):
    words = [
        "a b",
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
        "'",
        '"',
        "\\",
        "*",
        "é",
        "",
        "-n",
        "#x",
        "a\nb",
    ]
    name = 'it\'s "a" $(touch pwned); `touch pwned` #1 %j \\ |&'
    says = "import json,sys; print(json.dumps(sys.argv[1:]))"
    record = bench.submit("--name", name, "--env", "WORD=$(touch pwned)'", command=[sys.executable, "-c", says, *words])
    assert bench.end(record) == "COMPLETED"
    assert json.loads(bench.out(record)) == words
    assert f"JobName={name} UserId" in bench.cluster.show(record["job_id"])
    assert not list(bench.folder.rglob("pwned"))
    found = json.loads(bench.vivace("status", record["job_id"], "--json").stdout)
    assert (found["name"], found["state"], found["exit_code"]) == (name, "completed", 0)


def test_a_failing_command_fails_the_job_with_its_exit_code(bench: Bench):
    says = "import sys; print('hello'); raise ValueError('no such data') if len(sys.argv) < 2 else SystemExit(3)"
    record = bench.submit("--name", "bad", command=[sys.executable, "-c", says, "x"])
    other = bench.submit("--name", "worse", command=[sys.executable, "-c", says])
    assert bench.end(record) == "FAILED"
    assert "ExitCode=3:0" in bench.cluster.show(record["job_id"])
    assert bench.end(other) == "FAILED"
    found = json.loads(bench.vivace("status", "worse", "--json").stdout)
    assert found["state"] == "failed"
    assert found["exit_code"] == 1
    assert found["last_error"] == "ValueError: no such data"
    assert "exit code 1" in bench.vivace("status", other["job_id"]).stdout
    assert bench.vivace("logs", "bad").stdout == "hello\n"
    assert "ValueError: no such data" in bench.vivace("logs", "wors*", "--err").stdout


def test_out_of_memory_is_recognised_though_slurm_calls_it_a_failure(bench: Bench):
    says = "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')"
    record = bench.submit("--name", "oom", command=[sys.executable, "-c", says])
    assert bench.end(record) == "FAILED"
    assert json.loads(bench.vivace("status", "oom", "--json").stdout)["state"] == "out-of-memory"


def test_a_rank_killed_with_9_does_not_read_completed_and_ends_the_others(bench: Bench):
    says = "import time; print('up', flush=True); time.sleep(600)"
    record = bench.submit("--gpus", "2", "--name", "killed", command=[sys.executable, "-c", says])
    bench.cluster.wait("both ranks", lambda: bench.out(record).count("up") == 2)
    os.kill(bench.cluster.step_processes(record["job_id"])[0], signal.SIGKILL)
    assert bench.end(record) == "FAILED"
    found = json.loads(bench.vivace("status", "killed", "--json").stdout)
    assert found["state"] == "failed"
    assert found["exit_code"] in (137, 143)  # srun gives the largest: 9 of the killed rank, or 15 of the one it ended
    assert bench.cluster.step_processes(record["job_id"]) == []


def test_queue_logs_and_cancel(bench: Bench):
    says = "import time; print('up', flush=True); time.sleep(600)"
    record = bench.submit("--name", "long one", command=[sys.executable, "-c", says])
    waiting = bench.submit("--name", "next", "--after", record["job_id"], command=["true"])
    bench.cluster.wait("output", lambda: bench.out(record) == "up\n")
    jobs = {job["job_id"]: job for job in json.loads(bench.vivace("queue", "--json").stdout)}
    assert jobs[record["job_id"]]["state"] == "RUNNING"
    assert jobs[record["job_id"]]["limit_s"] == 600
    assert jobs[waiting["job_id"]]["reason_in_words"] == "it waits for another job to end"
    table = bench.vivace("queue", "long one").stdout
    assert "running" in table
    assert "next" not in table
    assert bench.vivace("logs", "long one").stdout == "up\n"
    assert "no waiting or running job" in bench.vivace("cancel", "nothing").stderr
    assert json.loads(bench.vivace("cancel", "long one", "next", "--json").stdout) == [
        record["job_id"],
        waiting["job_id"],
    ]
    assert bench.end(record) == "CANCELLED"
    assert bench.end(waiting) == "CANCELLED"
    assert json.loads(bench.vivace("status", "long one", "--json").stdout)["state"] == "cancelled"
    # The queue is empty again: following it ends by itself.
    assert "Done!" in bench.vivace("queue", "long one", "--follow").stdout


def test_logs_are_followed_to_the_end_of_the_job(bench: Bench):
    says = "import time\nfor i in range(5): print(i, flush=True); time.sleep(0.2)"
    record = bench.submit("--name", "talk", command=[sys.executable, "-c", says])
    assert bench.vivace("logs", record["job_id"], "-f").stdout == "0\n1\n2\n3\n4\n"
    assert bench.end(record) == "COMPLETED"


def test_an_array_runs_its_tasks_and_keeps_their_logs_apart(bench: Bench):
    says = "import os; print(os.environ['SLURM_ARRAY_TASK_ID'])"
    record = bench.submit("--array", "1-3%2", "--name", "many", command=[sys.executable, "-c", says])
    logs = Path(record["folder"])
    bench.cluster.wait(
        "three logs", lambda: [p.read_text() for p in sorted(logs.glob("*.out"))] == ["1\n", "2\n", "3\n"]
    )
    assert bench.vivace("logs", f"{record['job_id']}_2").stdout == "2\n"
    assert bench.vivace("logs", "many").stdout.count("==>") == 3


def test_an_array_is_cancelled_with_its_waiting_tasks(bench: Bench):
    record = bench.submit("--array", "0-3%1", "--name", "waiting many", command=["sleep", "600"])
    bench.cluster.wait("a task", lambda: bench.cluster.state(f"{record['job_id']}_0") == "RUNNING")
    assert bench.vivace("cancel", "waiting*").returncode == 0
    bench.cluster.wait("none left", lambda: bench.vivace("queue", "waiting many", "--json").stdout.strip() == "[]")
    assert set(re.findall(r"JobState=(\w+)", bench.cluster.show(record["job_id"]))) == {"CANCELLED"}


def test_a_folder_for_runs_that_cannot_be_made_is_said(bench: Bench):
    (bench.folder / "file").write_text("")
    done = bench.vivace("submit", "--cluster", "testbed", "--output", "file", "--", "true")
    assert done.returncode == 2
    assert "cannot make a run folder" in done.stderr


def test_lists_of_commands_and_counts_give_their_product(bench: Bench):
    (bench.folder / "commands.txt").write_text("echo 'first one'\n# a comment\necho second\n")
    done = bench.vivace(
        *("submit", "--cluster", "testbed", "--time", "5:00", "--gpus", "1,2", "--commands", "commands.txt", "--json")
    )
    records = json.loads(done.stdout)
    assert [(r["command"][1], r["gpus"]) for r in records] == [
        *[("first one", 1), ("first one", 2)],
        *[("second", 1), ("second", 2)],
    ]
    assert [bench.end(record) for record in records] == ["COMPLETED"] * 4
    assert bench.out(records[1]) == "first one\n" * 2


def test_what_slurm_would_refuse_or_never_start_is_said_before_and_leaves_nothing(bench: Bench):
    cases = [
        (["--partition", "nope"], "invalid partition specified"),
        (["--constraint", "h100"], "Invalid feature specification"),
        (["--cpus-per-task", "64"], "node configuration is not available"),
        (["--time", "30:00:00"], "would never start: it asks for 30:00:00, and the partition gpu_p13 allows 20:00:00"),
        (["--gpus", "12"], "would never start: it asks for 3 nodes, and the partition gpu_p13 gives 2"),
    ]
    for options, sentence in cases:
        done = bench.vivace("submit", "--cluster", "testbed", *options, "--", "true")
        text = " ".join(done.stderr.split())
        assert done.returncode == 2, text
        assert sentence in text
        assert "hint:" in text
        assert "Traceback" not in text
    assert not any((bench.folder / "vivace-runs").iterdir())
    assert bench.cluster.run("squeue", "-h", "-n", "true").stdout == ""


def test_without_a_cluster_name_the_queue_itself_is_asked(bench: Bench):
    done = bench.vivace("submit", "--gpus", "8", "--dry-run", "--", "true")
    assert "--nodes=2" in done.stdout
    assert "--cpus-per-task=4" in done.stdout
    assert "--partition=gpu_p13" in done.stdout
    assert "no partition 'nope'" in bench.vivace("submit", "--partition", "nope", "--dry-run", "--", "true").stderr


def test_srun_inside_a_job_gives_its_tasks_torchruns_variables(bench: Bench):
    says = "import os; print('|'.join(os.environ[n] for n in ['RANK','LOCAL_RANK','WORLD_SIZE']))"
    record = bench.submit("--once", "--gpus", "8", "--name", "once", command=["srun", sys.executable, "-c", says])
    assert bench.end(record) == "COMPLETED", bench.err(record)
    assert sorted(bench.out(record).split()) == [f"{rank}|{rank % 4}|8" for rank in range(8)]


def test_the_users_own_sbatch_variables_do_not_change_the_job(bench: Bench):
    says = "import os; print(os.environ['RANK'], os.environ['MASTER_ADDR'] != '', os.environ.get('MINE'))"
    words = ["submit", "--cluster", "testbed", "--time", "10:00", "--name", "asked", "--json", "--env", "LR=1", "--"]
    own = {"SBATCH_TIMELIMIT": "3", "SBATCH_JOB_NAME": "other", "SBATCH_EXPORT": "NONE", "MINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "vivace", *words, sys.executable, "-c", says],
        env={**bench.env, **own}, cwd=bench.folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert bench.end(record) == "COMPLETED", bench.err(record)
    assert bench.out(record) == "0 True None\n"
    shown = bench.cluster.show(record["job_id"])
    assert "TimeLimit=00:10:00" in shown
    assert "JobName=asked" in shown
    assert "note: $SBATCH_TIMELIMIT is set here and is not used: the job asks for its own --time" in done.stderr
    assert "$SBATCH_EXPORT is NONE" in done.stderr


def test_follow_shows_the_output_and_ends_as_the_job_does(bench: Bench):
    words = [
        "submit",
        "--cluster",
        "testbed",
        "--time",
        "10:00",
        "--name",
        "shown",
        "--follow",
        "--",
        sys.executable,
        "-c",
    ]
    done = bench.vivace(*words, "print('hello')")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "hello")
    assert "completed: it ended well" in done.stderr
    done = bench.vivace(*words, "raise SystemExit(3)")
    assert done.returncode == 1
    assert "failed: the command failed with exit code 3" in done.stderr


def test_the_queue_shows_gpus_and_what_each_job_of_a_product_runs(bench: Bench):
    first = bench.submit("--name", "wide", "--sbatch=--hold", "--gpus", "8", command=["python", "t.py", "-b", "8"])
    other = bench.submit("--name", "one", "--sbatch=--hold", "--gpus", "1", command=["python", "t.py", "--key=X"])
    found = {job["job_id"]: job for job in json.loads(bench.vivace("queue", "--json").stdout)}
    assert (found[first["job_id"]]["gpus"], found[first["job_id"]]["command"]) == (8, "python t.py -b 8")
    assert (found[other["job_id"]]["gpus"], found[other["job_id"]]["command"]) == (1, "python t.py '--key=***'")
    assert "python t.py -b 8" in bench.vivace("queue", "--no-follow").stdout
    bench.vivace("cancel", first["job_id"], other["job_id"])


def test_options_that_slurm_users_expect(bench: Bench, tmp_path: Path):
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/activate").write_text("export ACTIVATED=yes\n")
    record = bench.submit(
        "--venv", "env", "--mem", "300M", "--exclude", "node1", "--mail", "me@example.org", "--name", "options",
        command=["bash", "-c", "echo $ACTIVATED $SLURMD_NODENAME"],
    )  # fmt: skip
    assert bench.end(record) == "COMPLETED", bench.err(record)
    assert bench.out(record).split() in (["yes", "node2"], ["yes", "node3"])
    shown = bench.cluster.show(record["job_id"])
    assert "MinMemoryNode=300M" in shown
    assert "MailUser=me@example.org MailType=END,FAIL,REQUEUE" in shown
    done = bench.vivace("submit", "--cluster", "testbed", "--venv", "none", "--dry-run", "--", "true")
    assert "none is no virtual environment" in done.stderr
    done = bench.vivace("submit", "--cluster", "testbed", "--reservation", "course", "--", "true")
    assert done.returncode == 2
    assert "reservation" in done.stderr.lower()


def in_front(bench: Bench, program: str, script: str) -> dict[str, str]:
    """The environment in which ``script`` is found before Slurm's own program, whose path is ``$REAL``."""
    real = shutil.which(program, path=bench.env["PATH"])
    folder = bench.folder / "in front"
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(f"#!/bin/bash\nREAL={real}\n{script}\n")
    (folder / program).chmod(0o755)
    return {"PATH": f"{folder}:{bench.env['PATH']}"}


def test_a_job_that_slurm_took_keeps_its_folder_and_its_number_is_told(bench: Bench):
    """``scontrol show`` that fails, and a record that cannot be written, after ``sbatch`` has queued the job."""
    submit = ("submit", "--cluster", "testbed", "--time", "5:00", "--json", "--name", "kept", "--", "true")
    silent = 'case "$*" in *"show job"*) echo "slurm_load_jobs error: Unable to contact" >&2; exit 1 ;; esac\n'
    unconfirmed = bench.vivace(*submit, env=in_front(bench, "scontrol", silent + 'exec "$REAL" "$@"'))
    shutil.rmtree(bench.folder / "in front")
    blocks = 'case "$*" in *--test-only*) ;; *) mkdir "$(dirname "${@: -1}")/run.json" ;; esac\n'
    unwritten = bench.vivace(*submit, env=in_front(bench, "sbatch", blocks + 'exec "$REAL" "$@"'))
    for done, sentence in (
        (unconfirmed, "Slurm did not confirm it"),
        (unwritten, "run.json cannot"),
    ):
        assert done.returncode == 0, done.stderr
        (record,) = json.loads(done.stdout)
        assert len(record["warnings"]) == 1
        assert sentence in record["warnings"][0]
        assert f"warning: job {record['job_id']} is in the queue, but" in done.stderr
        assert (Path(record["folder"]) / "job.sh").is_file()
        assert bench.end(record) == "COMPLETED"


def test_a_product_is_checked_whole_before_the_first_job_is_sent_and_what_was_sent_is_told(bench: Bench):
    submit = ("submit", "--cluster", "testbed", "--time", "5:00", "--json", "--name", "many")
    done = bench.vivace(*submit, "--gpus", "1,2,400", "--", "sleep", "60")
    assert done.returncode == 2
    assert json.loads(done.stdout) == []
    assert "would never start: it asks for 100 nodes" in done.stderr
    assert bench.cluster.run("squeue", "-h", "-n", "many").stdout == ""
    refuse = '{ echo "sbatch: error: no" >&2; exit 1; }'
    second = f'case "$*" in *--test-only*) ;; *) mkdir first 2>/dev/null || {refuse} ;; esac\n'
    refused = bench.vivace(
        *submit, "--gpus", "1,2,4", "--", "true", env=in_front(bench, "sbatch", second + 'exec "$REAL" "$@"')
    )
    assert refused.returncode == 2
    (record,) = json.loads(refused.stdout)
    assert f"sbatch refused: no (1 of 3 jobs are in the queue: {record['job_id']})" in " ".join(refused.stderr.split())
    assert [folder.name for folder in Path(record["folder"]).parent.iterdir()] == [Path(record["folder"]).name]
    assert bench.end(record) == "COMPLETED"
