"""``vivace.preemption`` on a real Slurm: signal → agreement → checkpoint → requeue → the same losses as without."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launch.conftest import ROOT, Bench
from launch.slurm_cluster import FINAL

EXAMPLE = ROOT / "examples" / "preemptible.py"
STEPS = 60
SIGNALS = ("USR1", "USR2", "TERM")

# Runs the example. Soon after the step at which the test means to interrupt it (one in each life), rank 0 waits for
# that: a signal may take seconds on a busy machine, and the training would be over.
PATIENT = """
import os, runpy, sys, time
plan, *sys.argv = sys.argv[1:]
plan = [int(step) for step in plan.split(",")][int(os.environ.get("SLURM_RESTART_COUNT", "0")):]
pause = time.sleep

def sleep(seconds):
    pause(seconds)
    names = sys._getframe(1).f_locals
    while plan and names.get("rank") == 0 and names["step"] >= plan[0] + 5 and names["guard"].signal is None:
        names["guard"]._look()
        pause(0.02)

time.sleep = sleep
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# A loop without torch: quick to start, for what does not need ranks.
LOOP = """
import pathlib, time
from vivace.preemption import Preemption, save_atomically
guard, file = Preemption(save_every_steps=10), pathlib.Path("{checkpoint}")
done = int(file.read_text()) if file.exists() else 0
print("begins at", done, flush=True)
for step in range(done, {steps}):
    time.sleep(0.02)
    print("step", step, flush=True)
    if guard.should_save():
        save_atomically(step + 1, file, lambda value, handle: handle.write(str(value).encode()))
        if guard.stopping:
            guard.requeue_and_exit()
"""


def losses(text: str) -> dict[tuple[int, int], str]:
    """Loss (in hexadecimal, so exact) by step and rank; a step that was trained twice must give the same.

    Two ranks that print at once may share a line.
    """
    found: dict[tuple[int, int], str] = {}
    for step, rank, loss in re.findall(r"step (\d+) rank (\d+) loss ([-+.0-9a-fxp]+)", text):
        assert found.setdefault((int(step), int(rank)), loss) == loss, f"step {step} gave two losses"
    return found


def last_step(bench: Bench, record: dict[str, Any]) -> int:
    return max((int(step) for step in re.findall(r"^step (\d+)", bench.out(record), re.MULTILINE)), default=-1)


def training(bench: Bench, name: str, plan: list[int]) -> list[str]:
    """Words after ``python``: a training that is to be interrupted once it has reached each of these steps."""
    words = [str(EXAMPLE), "--steps", str(STEPS), "--step-seconds", "0.05", "--checkpoint", f"{name}.pt"]
    if not plan:
        return words
    script = bench.folder / "patient.py"
    script.write_text(PATIENT)
    return [str(script), ",".join(map(str, plan)), *words]


def train(bench: Bench, name: str, plan: list[int], *options: str) -> dict[str, Any]:
    return bench.submit("--name", name, *options, command=[sys.executable, *training(bench, name, plan)])


def interrupt(bench: Bench, record: dict[str, Any], plan: list[int], dice: random.Random) -> None:
    """Signal the job at the planned steps, once a life, some milliseconds into the step."""
    for lives, step in enumerate(plan, start=1):

        def reached(lives: int = lives, step: int = step) -> bool:
            return bench.out(record).count("rank 0 of") == lives and last_step(bench, record) >= step

        bench.cluster.wait(f"step {step} in life {lives}", reached)
        time.sleep(dice.random() * 0.06)
        bench.cluster.run("scancel", f"--signal={dice.choice(SIGNALS)}", record["job_id"])


def test_signals_at_random_moments_change_no_loss(bench_with_names: Bench):
    bench = bench_with_names
    seed = random.SystemRandom().randrange(10**6)
    dice = random.Random(seed)
    print("seed", seed)  # shown when the test fails
    plan = [dice.randrange(1, 20), dice.randrange(28, STEPS - 8)]  # the second life begins between them
    reference = train(bench, "reference", [], "--gpus", "2")
    record = train(bench, "interrupted", plan, "--gpus", "2")
    interrupt(bench, record, plan, dice)
    assert bench.end(reference) == "COMPLETED"
    expected = losses(bench.out(reference))
    assert len(expected) == 2 * STEPS
    assert bench.end(record) == "COMPLETED", bench.err(record)
    text = bench.out(record)
    assert losses(text) == expected
    # Not the script's own "requeued" line: Slurm may end the script before it has printed that.
    assert f"restarts {len(plan)}" in text
    starts = [int(step) for step in re.findall(r"rank 0 of 2 on \S+ begins at step (\d+)", text)]
    others = [int(step) for step in re.findall(r"rank 1 of 2 on \S+ begins at step (\d+)", text)]
    assert starts == others
    assert starts == sorted(set(starts))  # each life went further
    assert "Traceback" not in bench.err(record)
    # Nothing that was trained is trained again: the save is of the very step at which the ranks agreed.
    assert len(re.findall(r"^step \d+ rank 0", text, re.MULTILINE)) == STEPS


def test_two_nodes_of_two_ranks_stop_save_and_go_on_together(bench_with_names: Bench):
    bench = bench_with_names
    shape = ("--gpus", "8", "--gpus-per-task", "2")
    record = train(bench, "multi-node", [5], *shape)
    interrupt(bench, record, [5], random.Random(0))
    assert bench.end(record) == "COMPLETED", bench.err(record)
    text = bench.out(record)
    if bench.cluster.namespaces:
        hosts = {(rank, host) for rank, host in re.findall(r"rank (\d) of 4 on (\S+) begins", text)}
        assert hosts == {("0", "node1"), ("1", "node1"), ("2", "node2"), ("3", "node2")}
    assert sorted(losses(text)) == [(step, rank) for step in range(STEPS) for rank in range(4)]
    assert len(set(re.findall(r"begins at step (\d+)", text))) == 2
    assert json.loads(bench.vivace("status", "multi-node", "--json").stdout)["restarts"] == 1


def test_the_limit_on_restarts_holds_and_the_job_does_not_read_completed(bench: Bench):
    loop = LOOP.format(checkpoint="limit", steps=10**6)
    record = bench.submit("--name", "limit", "--max-requeues", "0", command=[sys.executable, "-c", loop])
    bench.cluster.wait("a step", lambda: last_step(bench, record) >= 1)
    bench.cluster.run("scancel", "--signal=USR1", record["job_id"])
    assert bench.end(record) == "FAILED"
    assert "not requeued again after 0 restarts" in bench.err(record)
    found = json.loads(bench.vivace("status", "limit", "--json").stdout)
    assert found["exit_code"] == 85
    assert "send it again" in found["because"]


def test_a_cancelled_job_saves_but_is_not_requeued(bench: Bench):
    loop = LOOP.format(checkpoint="cancelled", steps=10**6)
    record = bench.submit("--name", "cancelled", command=[sys.executable, "-c", loop])
    bench.cluster.wait("a step", lambda: last_step(bench, record) >= 1)
    assert bench.vivace("cancel", "cancelled").returncode == 0
    assert bench.end(record) == "CANCELLED"
    bench.cluster.wait("all processes gone", lambda: not bench.cluster.step_processes(record["job_id"]))
    assert (bench.folder / "cancelled").exists()  # SIGTERM came first, and was heard
    assert bench.cluster.state(record["job_id"]) == "CANCELLED"
    assert "Restarts=0" in bench.cluster.show(record["job_id"])


def test_in_a_script_of_ones_own_rank_0_requeues_its_array_task_and_no_other(bench: Bench):
    program = bench.folder / "loop.py"
    by_task = '" + __import__("os").environ["SLURM_ARRAY_TASK_ID"] + "'
    only_when_resumed = '100 if done or __import__("os").environ["SLURM_ARRAY_TASK_ID"] == "1" else 10**6'
    program.write_text(LOOP.format(checkpoint=by_task, steps=only_when_resumed))
    script = bench.folder / "own.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --array=1-2 --requeue --open-mode=append -o own-%a.out -t 5\n"
        f"export PYTHONPATH={ROOT}\nsrun {sys.executable} {program}\n"
    )
    job = bench.cluster.run("sbatch", "--parsable", str(script), cwd=bench.folder).stdout.strip()
    logs = [bench.folder / f"own-{task}.out" for task in (1, 2)]
    bench.cluster.wait("both run", lambda: all("step 1\n" in log.read_text() for log in logs))
    bench.cluster.run("scancel", "--signal=USR1", f"{job}_2")  # the last task bears the array's own number
    bench.cluster.wait("completed", lambda: {bench.cluster.state(f"{job}_{task}") for task in (1, 2)} == {"COMPLETED"})
    first, second = (log.read_text() for log in logs)
    assert "step 99\n" in first
    assert first.count("begins at") == 1
    assert second.count("begins at") == 2
    assert f"job {job}_2 is requeued (restart 1 of at most 10)" in second


def test_a_loader_with_protected_workers_survives_sigterm_to_every_process(bench: Bench):
    program = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
from vivace.preemption import Preemption, protect_worker
guard = Preemption()
data = TensorDataset(torch.arange(100000.0))
steps_after = 0
for step, (x,) in enumerate(DataLoader(data, batch_size=1, num_workers=2, worker_init_fn=protect_worker)):
    print("step", step, flush=True)
    time.sleep(0.02)
    steps_after += guard.signal is not None
    if steps_after > 20:  # many batches after the signal: the workers still live
        print("still fed", flush=True)
        guard.requeue_and_exit()
"""
    record = bench.submit("--name", "loader", "--max-requeues", "0", command=[sys.executable, "-c", program])
    bench.cluster.wait("steps", lambda: last_step(bench, record) >= 5)
    bench.cluster.run("scancel", "--signal=TERM", record["job_id"])
    assert bench.end(record) == "FAILED"
    assert "still fed" in bench.out(record)
    assert "ExitCode=85:0" in bench.cluster.show(record["job_id"])
    assert "Traceback" not in bench.err(record)


def warn(bench: Bench, record: dict[str, Any]) -> None:
    """As Slurm does before the time limit (``--signal=B:USR1@…``): the batch script alone hears it."""
    bench.cluster.run("scancel", "--batch", "--signal=USR1", record["job_id"])


def begins_of(bench: Bench, record: dict[str, Any]) -> list[int]:
    return [int(step) for step in re.findall(r"^begins at (\d+)", bench.out(record), re.MULTILINE)]


def test_a_warning_loses_nothing_however_the_command_was_started_and_whenever_it_comes(bench: Bench):
    """Side by side, for a requeued job waits some seconds: ``once``, without srun; ``early``, before anything listens;
    ``late``, when the training is done; ``deaf``, which does not listen at all; ``own``, which has its own handler."""

    def send(name: str, program: str, *options: str) -> dict[str, Any]:
        return bench.submit("--name", name, *options, command=[sys.executable, "-c", program])

    waits = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
    until_resumed = "done + 5 if done else 10**6"
    once = send("once", LOOP.format(checkpoint="once", steps=until_resumed), "--once")
    early = send("early", waits + LOOP.format(checkpoint="early", steps=until_resumed))
    late = send("late", LOOP.format(checkpoint="late", steps=3) + "\nguard.close()\n" + waits + "print('exported')")
    deaf = send("deaf", waits + "print('ended')")
    own = send("own", "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('heard'))\n" + waits)
    bench.cluster.wait("a step", lambda: last_step(bench, once) >= 1)
    for record in (early, late, deaf, own):
        bench.cluster.wait("output", lambda record=record: "up\n" in bench.out(record))  # type: ignore[misc]
    for record in (once, early, late, deaf, own):
        warn(bench, record)
    told = Path(early["folder"]) / f"{early['job_id']}.told"
    bench.cluster.wait("the warnings", lambda: told.exists() and "heard" in bench.out(own))
    (bench.folder / "go").touch()
    for record in (once, early, late, deaf, own):
        assert bench.end(record) == "COMPLETED", (record["name"], bench.err(record))
    for record in (once, early):  # stopped, saved, and went on from there
        first, second = begins_of(bench, record)
        assert second > first == 0
    assert begins_of(bench, late) == [0]  # never trained again
    assert "exported" in bench.out(late)
    assert bench.out(deaf) == "up\nended\n"
    assert bench.out(own).count("heard") == 1


def test_torchrun_in_a_job_survives_the_warning_and_its_ranks_save(bench: Bench):
    """Both ways: Slurm's own (to the batch script), and a signal to every process of the step, torchrun's included."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

    def send(name: str, *options: str) -> dict[str, Any]:
        shape = ("--gpus", "2", "--gpus-per-task", "2")
        return bench.submit("--name", name, *shape, *options, command=[*torchrun, *training(bench, name, [1])])

    warned, signalled = send("warned"), send("signalled", "--max-requeues", "0")
    bench.cluster.wait("a step", lambda: last_step(bench, warned) >= 1)
    warn(bench, warned)
    bench.cluster.wait("a step", lambda: last_step(bench, signalled) >= 1)
    bench.cluster.run("scancel", "--signal=USR1", signalled["job_id"])
    assert bench.end(signalled) == "FAILED"
    found = json.loads(bench.vivace("status", "signalled", "--json").stdout)
    assert (found["exit_code"], found["checkpoint"]) == (85, str(bench.folder.resolve() / "signalled.pt"))
    assert found["checkpoint_saved_at"] is not None
    assert "saved a checkpoint, but was not requeued" in found["because"]
    assert bench.end(warned) == "COMPLETED", bench.err(warned)
    assert sorted(losses(bench.out(warned))) == [(step, rank) for step in range(STEPS) for rank in range(2)]
    assert len(re.findall(r"rank 0 of 2 on \S+ begins", bench.out(warned))) == 2
    assert "restarts 1" in bench.out(warned)


def test_a_controller_that_is_down_is_asked_until_it_answers(bench: Bench):
    loop = LOOP.format(checkpoint="patient", steps="done + 5 if done else 10**6")
    record = bench.submit("--name", "patient", command=[sys.executable, "-c", loop])
    bench.cluster.wait("a step", lambda: last_step(bench, record) >= 1)
    warn(bench, record)
    with bench.cluster.controller_down():
        bench.cluster.wait("patience", lambda: bench.err(record).count("Slurm does not answer") >= 2)
    assert bench.end(record) == "COMPLETED", bench.err(record)
    first, second = begins_of(bench, record)
    assert second > first == 0


@pytest.mark.slow
def test_time_limit_preemption_and_a_dead_node_are_all_survived(bench: Bench):
    # Slurm's own clocks (30 s for time limits, SlurmdTimeout for nodes) cannot be hurried: the three wait together.
    cluster = bench.cluster

    def loop(name: str, steps: str, *options: str) -> dict[str, Any]:
        command = [sys.executable, "-c", LOOP.format(checkpoint=name, steps=steps)]
        return bench.submit("--name", name, *options, command=command)

    on_node1 = ("--sbatch=--nodelist=node1", "--gpus-per-task", "3", "--gpus", "3", "--partition", "preempt")
    until_resumed = "done + 5 if done else 10**6"
    limited = loop("limited", until_resumed, "--time", "1:00", "--signal-lead", "30", "--sbatch=--nodelist=node1")
    preempted = loop("preempted", until_resumed, *on_node1)
    lost = loop("lost", until_resumed, "--sbatch=--nodelist=node2")
    jobs = (limited, preempted, lost)
    for job in jobs:
        cluster.wait("a save", lambda job=job: last_step(bench, job) >= 10)  # type: ignore[misc]
    first = bench.submit("--name", "first", "--gpus", "3", "--sbatch=--nodelist=node1", command=["true"])
    cluster.kill_node(2)
    cluster.wait("the loss noticed", lambda: "Restarts=1" in cluster.show(lost["job_id"]))
    cluster.start_node(2)
    assert bench.end(first) == "COMPLETED"
    for job in jobs:
        done = cluster.wait_state(job["job_id"], FINAL - {"NODE_FAIL"})
        assert done == "COMPLETED", (job["name"], bench.err(job))
    begins = {job["name"]: [int(n) for n in re.findall(r"begins at (\d+)", bench.out(job))] for job in jobs}
    assert begins["limited"][1] > begins["limited"][0] == 0
    assert begins["preempted"][1] > begins["preempted"][0] == 0  # SIGTERM was heard
    assert begins["lost"][1] % 10 == 0 < begins["lost"][1]  # the last periodic save: no signal came


def test_the_handler_only_sets_a_flag_and_only_in_its_own_process():
    import os

    from vivace.preemption import Preemption

    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        with Preemption() as guard:
            assert not guard.should_stop()
            child = os.fork()
            if child == 0:  # a forked child: USR1 is not for it, and must not end it
                os.kill(os.getpid(), signal.SIGUSR1)
                os._exit(7 if guard.signal is None else 8)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
            assert guard.signal is None
            os.kill(os.getpid(), signal.SIGUSR2)
            assert guard.should_stop()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN  # the training is done: no warning may kill it
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
