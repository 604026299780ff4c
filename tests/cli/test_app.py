"""The command itself: help with examples, the version, unknown words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from conftest import environment

import vivace as package


def test_help_names_the_commands(vivace: Callable):
    done = vivace("--help")
    assert done.code == 0
    assert "measure" in done.out
    assert "hardware" in done.out


@pytest.mark.parametrize("command", ["measure", "hardware", "submit", "queue", "logs", "status", "cancel"])
def test_help_of_a_command_has_an_example(vivace_here: Callable, command: str):
    done = vivace_here(command, "--help")
    assert done.code == 0
    assert f"vivace {command}" in done.out


def test_version(vivace: Callable):
    assert vivace("--version").out.strip() == f"vivace {package.__version__}"


def test_an_unknown_command_is_an_error_without_a_traceback(vivace: Callable):
    done = vivace("measur")
    assert done.code == 2
    assert "Traceback" not in done.err


def test_the_command_starts_without_torch():
    """Half of the commands never need it, and importing it takes longer than all that they do."""
    code = "import sys, vivace.cli.app as app; app.application(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_only_the_command_that_is_asked_for_is_imported():
    code = (
        "import sys, vivace.cli.app as app; app.application(['measure', '--', 'tune']); "
        "print(sorted(name for name in sys.modules if name in ('vivace.cli.measure', 'vivace.cli.tune', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['vivace.cli.measure']\n"


SPEAKS = """
import sys
from vivace.cli import app
sys.stdout, sys.stderr = app._patient(sys.stdout), app._patient(sys.stderr)
print("a message", file=sys.stderr)
sys.stdin.read()
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_message_is_seen_at_once_by_who_reads_stderr_through_a_pipe(unbuffered: str):
    """Job scripts set PYTHONUNBUFFERED; what vivace said came at its end then."""
    talk = subprocess.Popen(
        [sys.executable, "-c", SPEAKS], env=environment(PYTHONUNBUFFERED=unbuffered),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert talk.stdin is not None
    assert talk.stderr is not None
    assert talk.stderr.readline() == b"a message\n"  # it lives until its stdin is closed
    assert talk.poll() is None
    talk.communicate()


FLOODS = """
import os, sys
from vivace.cli import app
os.set_blocking(1, False)
sys.stdout = app._patient(sys.stdout)
print("x" * 1_000_000)
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_long_answer_is_whole_also_through_a_pipe_that_does_not_block(unbuffered: str):
    words = [sys.executable, "-c", FLOODS]
    done = subprocess.run(words, env=environment(PYTHONUNBUFFERED=unbuffered), capture_output=True, text=True)
    assert (len(done.stdout), done.stderr) == (1_000_001, "")
