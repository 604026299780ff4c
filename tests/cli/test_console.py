"""What is piped is never wrapped: paths, commands and sentences stay on one line. A terminal keeps its width."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCRIPTS, VIVACE, environment
from forked.process import PYTHON

ROOT = Path(__file__).parents[2]
LONG = "a-rather-long-name-of-a-file-that-does-not-exist-" * 3 + ".py"  # 150 characters: longer than 80 columns


@pytest.mark.parametrize("more", [{}, {"FORCE_COLOR": "1"}, {"COLUMNS": "60"}], ids=str)
def test_an_error_that_is_piped_is_one_line(vivace: Callable, more: dict[str, str]):
    done = vivace("measure", "--", LONG, "x", **more)
    (line,) = [line for line in done.err.splitlines() if "not found" in line]
    assert re.sub(r"\x1b\[[0-9;]*m", "", line) == f"vivace: command not found: {LONG}"


def test_a_usage_error_that_is_piped_is_one_line(vivace: Callable):
    done = vivace("measure", f"--{LONG}", "--", "python", "x.py")
    assert done.code == 2
    (line,) = [line for line in done.err.splitlines() if "No such option" in line]
    assert f"No such option: --{LONG}" in line


def test_a_measurement_that_is_piped_has_its_paths_whole_and_no_padding(vivace: Callable, tmp_path: Path):
    runs = tmp_path / ("long-name-of-a-folder-" * 6)
    command = [PYTHON, str(SCRIPTS / "plain.py"), "--steps", "20"]
    options = ["--steps", "4", "--warmup", "2", "--no-profile", "-q", "--output", str(runs)]
    lines = vivace("measure", *options, "--", *command).out.splitlines()
    assert f"record: {runs}/plain-001/measurement.json" in lines
    assert max(len(line) - len(line.rstrip()) for line in lines) < 80


def test_on_a_terminal_sentences_are_wrapped_at_its_width(tmp_path: Path):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*VIVACE, "practices", "compile"], cwd=tmp_path, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL,
        env=environment(TERM="xterm", COLUMNS="70", LINES="40"),
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # Linux says so that the other side is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).splitlines()
    why = lines.index("Why")
    assert all(len(line) <= 70 for line in lines[why : why + 4])
    assert len(lines[why + 1]) > 40


def test_every_console_knows_whether_it_is_a_terminal():
    """rich's own would wrap at 80 columns in a pipe."""
    sources = [path for path in (ROOT / "vivace").rglob("*.py") if path.name != "console.py"]
    assert [path.name for path in sources if re.search(r"(?<!make_c)\bConsole\(", path.read_text())] == []
