"""When something goes wrong: a clear message, the command's own exit code and output, and a record of what was seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCRIPTS, VIVACE, environment
from forked.process import PYTHON

from vivace.measure import measuring
from vivace.records.measurement import Measurement


def listen_to_interrupts() -> None:
    """A shell that runs the tests in the background has SIGINT ignored in all of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_gone(group: int) -> bool:
    """Whether no process of the group is left, within ten minutes."""
    for _ in range(6000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_crash_before_the_first_step(measure: Callable):
    done = measure("misbehaving.py", "crash", "--at", "0")
    assert done.code == 2
    assert "ended before its first training step was done (exit code 1)" in done.err
    assert "ended before its first training step" in done.err
    assert "ValueError: the data is broken" in done.err
    assert "ValueError: the data is broken" in (done.folder / "stderr.log").read_text()


def test_a_crash_inside_the_window(measure: Callable):
    done = measure("misbehaving.py", "crash", "--at", "9", options=("--steps", "50", "--warmup", "3"))
    assert done.code == 1
    record = done.record
    assert record["status"] == "partial"
    assert record["reason"] == "the script crashed: ValueError: the data is broken"
    assert 1 <= record["steps"] <= 6
    assert Measurement.load(done.folder / "measurement.json").status == "partial"


def test_a_crash_during_warm_up_still_gives_what_was_seen(measure: Callable):
    """Of four steps the first and the one that was slowed down to count FLOPs are left out."""
    done = measure("misbehaving.py", "crash", "--at", "4", options=("--steps", "50", "--warmup", "10"))
    assert done.code == 1
    assert (done.record["status"], done.record["steps"]) == ("partial", 2)


def test_after_its_exit_handlers_a_script_that_we_ended_is_not_taken_apart(measure: Callable, tmp_path: Path):
    """Freeing gigabytes of shared and pinned memory takes seconds, and the next trial waits for them."""
    done = measure("misbehaving.py", "slow-end", options=("--steps", "5", "--warmup", "3"))
    assert (tmp_path / "never_closed.txt").read_text() == "written"
    assert (done.code, done.record["status"]) == (0, "complete")
    printed = (done.folder / "stdout.log").read_text()
    assert "the script's own exit handler" in printed
    assert "taken apart" not in printed


def test_a_training_that_vivace_never_got_into_is_not_only_called_slow(vivace_here: Callable):
    command = [sys.executable, "-I", "-c", "import time; time.sleep(600)"]
    done = vivace_here("measure", "--timeout", "1", "--", *command)
    assert "no training step within 1 s" in done.err
    assert "hint: raise --timeout; vivace comes in through PYTHONPATH" in done.err


def test_the_scripts_own_exit_code(measure: Callable):
    done = measure("misbehaving.py", "exit", "--at", "5")
    assert done.code == 3
    assert done.record["status"] == "partial"
    assert done.record["reason"] == "the script ended by itself"


def test_out_of_memory_is_recognised(measure: Callable):
    done = measure("misbehaving.py", "oom", "--at", "5")
    assert done.code == 1
    assert done.record["reason"].startswith("out of memory: ")


def test_a_script_that_ends_early(measure: Callable):
    done = measure("plain.py", "--steps", "9", options=("--steps", "50", "--warmup", "2"))
    assert done.code == 0
    assert "finished" in done.err
    record = done.record
    assert (record["status"], record["reason"]) == ("partial", "the script ended by itself")
    assert record["steps"] + record["warmup_steps"] == 9


def test_a_script_that_ends_while_it_is_profiled_keeps_its_exit_code(measure: Callable):
    """torch dies of SIGSEGV when Python ends with a running profiler: 139 for a script that ended well."""
    done = measure("plain.py", "--steps", "10", options=("--steps", "5", "--warmup", "4", "--json"))
    assert done.code == 0, done.err
    (note,) = (note for note in done.record["notes"] if "the script ended by itself" in note)
    assert note.endswith("while profiling")


def test_a_command_without_torch(vivace: Callable):
    done = vivace("measure", "--", sys.executable, "-c", "print('hello'); raise SystemExit(7)")
    assert done.code == 2
    assert "(exit code 7)" in done.err
    assert "hello" in done.out
    assert "ended before its first training step" in done.err


def test_a_command_without_torch_that_ends_well(vivace_here: Callable):
    done = vivace_here("measure", "--", sys.executable, "-c", "print('hello')")
    assert done.code == 2
    assert "never imported torch" in done.err


def test_a_script_that_never_steps(measure: Callable):
    done = measure("misbehaving.py", "never-step")
    assert done.code == 2
    assert "an optimizer was made, but it never stepped" in done.err
    assert done.record["status"] == "nothing"


def test_a_hanging_script_is_stopped_and_what_it_did_is_kept(measure: Callable):
    done = measure("misbehaving.py", "hang", "--at", "9", options=("--timeout", "15", "--warmup", "3"))
    assert done.code == 124
    assert done.record["status"] == "partial"
    assert "--timeout" in done.record["reason"]
    assert done.record["steps"] >= 1


def test_a_script_that_swallows_our_exit_is_ended_all_the_same(measure: Callable):
    done = measure("misbehaving.py", "swallow")
    assert done.code == 0
    assert done.record["status"] == "complete"


def test_a_killed_process_is_not_said_to_have_done_nothing(measure: Callable):
    done = measure("unusual.py", "killed", options=("--steps", "99999999"))
    assert done.code == 2
    assert "(exit code 137)" in done.err
    assert "the training was ended after" in done.err


def test_a_script_that_ignores_the_interrupt_is_ended_and_what_it_did_is_kept(tmp_path: Path):
    """The second Ctrl-C ends it for good."""
    (tmp_path / "stubborn.py").write_text(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import torch; m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), lr=0.1); n = 0\n"
        "while True:\n"
        "    m(torch.randn(8, 4)).sum().backward(); o.step(); n += 1\n"
        "    if n == 50: print('training', flush=True)\n"
    )
    process = subprocess.Popen(
        [*VIVACE, "measure", "--steps", "99999999", "--", PYTHON, "stubborn.py"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=listen_to_interrupts,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "training" in line:
            break
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=600)
    assert process.returncode == 130
    record = Measurement.load(tmp_path / "vivace-runs" / "stubborn-001" / "measurement.json")
    assert (record.status, record.batch_size) == ("partial", 8)
    assert (record.reason or "").startswith("interrupted")
    assert is_gone(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_seen_and_leaves_no_process(tmp_path: Path, number: signal.Signals):
    script = [PYTHON, str(SCRIPTS / "misbehaving.py"), "hang", "--at", "8"]
    process = subprocess.Popen(
        [*VIVACE, "measure", "--steps", "9", "--warmup", "3", "--", *script],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=listen_to_interrupts,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "about to: hang" in line:
            break
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 128 + number, err
    record = Measurement.load(tmp_path / "vivace-runs" / "misbehaving-001" / "measurement.json")
    assert record.status == "partial"
    assert record.reason == "interrupted (Ctrl-C)"
    assert "PARTIAL" in out
    assert is_gone(process.pid)


def test_an_unwritable_output_folder_is_said_before_anything_runs(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = vivace_here("measure", "-o", str(tmp_path / "file" / "runs"), "--", sys.executable, "-c", "print('ran')")
    assert done.code == 2
    assert "cannot make a run folder" in done.err
    assert "ran" not in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--", "no-such-command-here"], "command not found"),
        (["--", "python train.py -b 8"], "without the quotes: vivace measure -- python train.py -b 8"),
        (["--steps", "0", "--", "true"], "--steps must be at least 1"),
        (["--warmup", "-1", "--", "true"], "--warmup must be 0 or more"),
        (["--timeout", "0", "--", "true"], "--timeout must be above 0"),
    ],
)
def test_a_users_mistake_is_one_sentence(vivace_here: Callable, arguments: list[str], sentence: str):
    done = vivace_here("measure", *arguments)
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_words_of_the_command_are_never_run_by_a_shell(vivace_here: Callable, tmp_path: Path):
    word = "$(touch hacked); `touch hacked` && touch hacked"
    done = vivace_here("measure", "--", sys.executable, "-c", "import sys; print(sys.argv[1])", word)
    assert word in done.out
    assert not (tmp_path / "hacked").exists()


def test_a_full_disk_is_told_and_not_that_nothing_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that is really full needs the right to mount one: here nothing counts as room enough."""
    (tmp_path / "train.py").write_text("import torch\n")
    request = measuring.Request((sys.executable, str(tmp_path / "train.py")), output=tmp_path / "runs")
    without_steps = measuring.measure(request, lambda *_: None, lambda _: None)
    assert "no backward pass and no optimizer step was seen" in (without_steps.message or "")
    monkeypatch.setattr(measuring, "_SMALLEST_ROOM", 2**70)
    full = measuring.measure(request, lambda *_: None, lambda _: None)
    assert "no space is left on the disk" in (full.message or "")
    assert full.hint == "free some space, or use --output on another disk"
