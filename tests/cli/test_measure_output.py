"""What the measured command prints arrives: on a terminal, in a file, in a pipe that closes, in any encoding."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCRIPTS, VIVACE, environment
from forked.process import PYTHON

from vivace.cli.showing import _Lines

# Every piece is read by vivace (its log has it) before the next one is written: what is cut, stays cut.
TALKER = r"""
import os, pathlib, sys, time
done = {1: 0, 2: 0}
def say(stream, data):
    os.write(stream, data)
    done[stream] += len(data)
    (log,) = pathlib.Path("vivace-runs").glob("*/" + {1: "stdout.log", 2: "stderr.log"}[stream])
    while log.stat().st_size < done[stream]:
        time.sleep(0.01)
say(1, b"caf\xc3"); say(1, b"\xa9 \xe8\xae"); say(1, b"\xad\n")
say(1, b"above\n\n\nbelow [red]x[/]\n")
say(1, b"\r 10%"); say(1, b"\r 50%\r"); say(1, b" 100%\n")
say(1, b"windows\r"); say(1, b"\nend without a newline")
say(2, b"warn\xc3"); say(2, b"\xa9\nlast of stderr")
sys.exit(7)
"""
ON_A_SCREEN = ["café 训", "above", "", "", "below [red]x[/]", " 100%", "windows"]


@pytest.fixture
def talker(tmp_path: Path) -> list[str]:
    (tmp_path / "talker.py").write_text(TALKER)
    return [*VIVACE, "measure", "--", sys.executable, "talker.py"]


def on_terminal(command: list[str], cwd: Path, stdout: int | None = None) -> tuple[list[str], int]:
    """Run with stderr (and stdout, unless given) on a pseudo-terminal: the lines a person sees, and the exit code."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=cwd, stdout=theirs if stdout is None else stdout, stderr=theirs, stdin=subprocess.DEVNULL,
        env=environment(TERM="xterm", COLUMNS="120", LINES="40", PYTHONUTF8="1"),
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # Linux says so that the other side is closed
            pass
        os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n")
    return [line.rpartition("\r")[2].rstrip("\n") for line in plain.split("\n")], process.returncode


def test_a_terminal_shows_whole_characters_blank_lines_and_the_last_state_of_a_line(tmp_path: Path, talker: list[str]):
    lines, code = on_terminal(talker, tmp_path)
    start = lines.index(ON_A_SCREEN[0])
    assert lines[start : start + len(ON_A_SCREEN)] == ON_A_SCREEN
    assert "warné" in lines
    assert lines.count("end without a newline") == lines.count("last of stderr") == 1
    assert not [line for line in lines if "10%" in line.replace("100%", "") or "50%" in line or "\ufffd" in line]
    assert code == 2


def test_redirected_stdout_gets_the_bytes_while_stderr_is_a_terminal(tmp_path: Path, talker: list[str]):
    path = tmp_path / "out.bin"
    with path.open("wb") as file:
        lines, code = on_terminal(talker, tmp_path, file.fileno())
    (log,) = tmp_path.glob("vivace-runs/*/stdout.log")
    assert path.read_bytes() == log.read_bytes()
    assert path.read_bytes().endswith(b"\r 10%\r 50%\r 100%\nwindows\r\nend without a newline")
    assert "warné" in lines
    assert "last of stderr" in lines
    assert not [line for line in lines if "café" in line or "windows" in line]
    assert code == 2


def test_with_json_all_of_the_output_is_on_the_screen_and_only_json_in_the_file(tmp_path: Path, talker: list[str]):
    path = tmp_path / "out.json"
    with path.open("wb") as file:
        lines, _code = on_terminal([*talker[:-3], "--json", *talker[-3:]], tmp_path, file.fileno())
    assert path.read_text().startswith('{"status": "nothing"')
    assert {"café 训", "warné"} <= set(lines)


def test_lines_cut_at_every_byte_are_the_same_lines():
    data = "é\n\n训\r\na\rbc\rd\nrest".encode()
    lines = _Lines()
    seen = [line.plain for byte in data for line in lines.feed(bytes([byte]))]
    assert [*seen, *(line.plain for line in lines.finish())] == ["é", "", "训", "d", "rest"]
    assert lines.finish() == []


def test_a_colour_lasts_over_lines_and_a_bar_without_newline_is_not_piled_up():
    lines = _Lines()
    first, second = lines.feed(b"\x1b[31mred\nstill red\n")
    assert first.spans[0].style == second.spans[0].style
    for step in range(1000):
        assert lines.feed(b"\r%d%%" % step) == []
    assert len(lines._rest) < 10
    assert [line.plain for line in lines.finish()] == ["999%"]


UNTIL_READER_IS_GONE = """
import pathlib, sys, time
print("first", flush=True)
while not pathlib.Path("gone").exists():
    time.sleep(0.01)
print("second\\n" * 100_000, flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "2>&1"])
def test_a_pipe_that_closes_is_no_error_and_the_command_goes_on(tmp_path: Path, both: bool):
    (tmp_path / "talker.py").write_text(UNTIL_READER_IS_GONE)
    with subprocess.Popen(
        [*VIVACE, "measure", "--", sys.executable, "talker.py"], cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT if both else subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        (tmp_path / "gone").touch()
        said = b"" if process.stderr is None else process.stderr.read()
    assert process.returncode == 2
    assert both or b"(exit code 5)" in said
    (log,) = tmp_path.glob("vivace-runs/*/stdout.log")
    assert log.read_bytes().count(b"second") == 100_000
    assert both or b"nothing measured" in said
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said


@pytest.mark.parametrize(
    "arguments",
    [["hardware"], ["hardware", "--json"], ["--help"], ["measure", "--json", "--", "true"], ["--version"]],
    ids=" ".join,
)
def test_a_pipe_nobody_reads_is_no_error(tmp_path: Path, arguments: list[str]):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*VIVACE, *arguments], cwd=tmp_path, env=environment(), stdout=writing, stderr=subprocess.PIPE, timeout=600
    )
    os.close(writing)
    assert done.returncode == (2 if "true" in arguments else 0)  # `true` does not train
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_the_report_of_a_measurement_to_a_pipe_nobody_reads_keeps_the_exit_code(tmp_path: Path):
    command = ["measure", "-q", "--steps", "3", "--no-profile", "--", PYTHON, str(SCRIPTS / "plain.py")]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*VIVACE, *command], cwd=tmp_path, env=environment(), stdout=writing, stderr=subprocess.PIPE, timeout=600
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(list(tmp_path.glob("vivace-runs/*/measurement.json"))) == 1


def test_an_ascii_terminal_is_no_reason_to_fail(vivace: Callable, tmp_path: Path):
    assert vivace("hardware", PYTHONIOENCODING="ascii").code == 0
    said = vivace("measure", "--name", "école", "--", "true", PYTHONIOENCODING="ascii")
    assert said.code == 2
    assert "nothing measured" in said.err
    report = vivace("measure", "--name", "训", "--steps", "3", "--no-profile", "--", PYTHON,
                    str(SCRIPTS / "plain.py"), PYTHONIOENCODING="ascii")  # fmt: skip
    assert report.code == 0, report.err
    assert "Traceback" not in report.err
    assert report.out.isascii()


def test_json_is_utf_8_whatever_the_locale(vivace: Callable):
    done = vivace("measure", "--json", "--name", "训", "--steps", "3", "--no-profile", "--", PYTHON,
                  str(SCRIPTS / "plain.py"), PYTHONIOENCODING="ascii")  # fmt: skip
    assert done.code == 0, done.err
    assert "训" in done.out
    assert done.record["kind"] == "measurement"


@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "-inf"])
def test_a_timeout_that_is_no_time_is_refused(vivace_here: Callable, seconds: str):
    done = vivace_here("measure", "--timeout", seconds, "--", "true")
    assert done.code == 2
    assert "--timeout must be above 0 seconds" in done.err
    assert not done.runs.exists()
