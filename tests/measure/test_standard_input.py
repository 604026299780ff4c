"""A command that is run many times gets the same standard input every time."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import VIVACE, environment
from forked.process import PYTHON

from vivace.errors import UserError
from vivace.measure.standard_input import StandardInput

READS_ALL = [sys.executable, "-c", "import sys; sys.stdout.write(sys.stdin.read())"]
READS_A_LINE = [sys.executable, "-c", "print(input())"]
READS_NOTHING = [sys.executable, "-c", "print('done')"]
TEXT = "learning rate\n0.1\n" * 20_000  # more than a pipe holds


def run(stdin: StandardInput, command: list[str]) -> str:
    with subprocess.Popen(command, stdin=stdin.for_a_run(), stdout=subprocess.PIPE) as process:
        stdin.feed(process)
        assert process.stdout is not None
        return process.stdout.read().decode()


def piped(text: str, end: bool = True) -> int:
    """The reading end of a pipe with that text; with ``end`` false, nobody ever closes the other one."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "w") as file:
            file.write(text)

    if end:
        threading.Thread(target=write, daemon=True).start()
    else:
        os.write(writing, text.encode())
    return reading


@pytest.mark.parametrize("as_file", [True, False], ids=["file", "pipe"])
def test_every_run_reads_the_same(tmp_path: Path, as_file: bool):
    (tmp_path / "answers.txt").write_text("left out" + TEXT)
    descriptor = os.open(tmp_path / "answers.txt", os.O_RDONLY) if as_file else piped(TEXT)
    if as_file:
        os.lseek(descriptor, len("left out"), os.SEEK_SET)  # somebody has read that already
    stdin = StandardInput(descriptor)
    assert run(stdin, READS_A_LINE) == "learning rate\n"
    assert run(stdin, READS_ALL) == TEXT
    assert run(stdin, READS_NOTHING) == "done\n"
    assert run(stdin, READS_ALL) == TEXT
    os.close(descriptor)


def test_what_was_read_for_a_run_that_has_ended_does_not_reach_the_next_one(monkeypatch: pytest.MonkeyPatch):
    """The next run's pipe gets the number of the one before, whose thread may be about to write."""
    stdin = StandardInput(piped("twice\n", end=False))
    asked, may_write, written = threading.Event(), threading.Event(), threading.Event()
    piece = stdin._piece

    def late(number: int) -> bytes | None:
        monkeypatch.setattr(stdin, "_piece", piece)
        got = piece(number)
        asked.set()
        may_write.wait(600)
        written.set()
        return got

    monkeypatch.setattr(stdin, "_piece", late)
    assert run(stdin, READS_NOTHING) == "done\n"
    asked.wait(600)
    with subprocess.Popen(READS_ALL, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        may_write.set()
        written.wait(600)
        time.sleep(0.05)
        assert other.communicate(b"once\n")[0] == b"once\n"


def test_a_pipe_that_nobody_closes_makes_nobody_wait():
    stdin = StandardInput(piped("yes\n", end=False))
    assert run(stdin, READS_NOTHING) == "done\n"
    assert [run(stdin, READS_A_LINE) for _ in range(2)] == ["yes\n", "yes\n"]


def test_more_than_can_be_kept_is_said_at_the_second_run():
    stdin = StandardInput(piped(TEXT), most_kept=1000)
    assert run(stdin, READS_ALL) == TEXT
    with pytest.raises(UserError, match="from a pipe") as caught:
        stdin.for_a_run()
    assert "< FILE" in (caught.value.hint or "")


def test_a_terminal_and_a_closed_input_are_empty():
    ours, theirs = pty.openpty()
    terminal = StandardInput(theirs)
    assert terminal.is_terminal
    assert run(terminal, READS_ALL) == ""
    os.close(theirs)
    os.close(ours)
    assert run(StandardInput(theirs), READS_ALL) == ""


ASKS = """
import sys, torch
steps = int(sys.stdin.readline())
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(steps):
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


def test_a_search_goes_on_after_its_first_run(tmp_path: Path):
    """The second trial found an empty input, and ended with a ValueError."""
    (tmp_path / "asks.py").write_text(ASKS + "for _ in torch.utils.data.DataLoader(range(9)): pass\n")
    options = ["--budget", "0.5", "--steps", "5", "--rounds", "1", "--name", "x"]
    done = subprocess.run(
        [*VIVACE, "tune", *options, PYTHON, "asks.py"], input="2000\n", cwd=tmp_path, env=environment(),
        text=True, capture_output=True, timeout=600,
    )  # fmt: skip
    assert (tmp_path / "vivace-runs/x-001/trials/001-baseline-again/trial.json").is_file(), done.stderr
    assert "ValueError" not in done.stderr
    assert "trained once and then did not" not in done.stderr


def test_on_a_terminal_the_hint_says_how_to_answer(tmp_path: Path):
    (tmp_path / "asks.py").write_text(ASKS)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*VIVACE, "tune", PYTHON, "asks.py"], stdin=theirs, cwd=tmp_path, env=environment(), text=True,
        capture_output=True, timeout=600,
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert "hint: runs that are repeated cannot read from the terminal" in done.stderr
