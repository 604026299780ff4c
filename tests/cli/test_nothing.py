"""Where nothing can be measured: the hint, the logs and the command's own error are shown, and one exit code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.errors import ExitCode

WELL = [sys.executable, "-c", "print('no training here')"]
BADLY = [sys.executable, "-c", "raise ValueError('the data is broken')"]
COMMANDS = [["measure"], ["check"], ["tune"], ["find", "loader"], ["find", "batch", "--flag", "-b"]]


@pytest.mark.parametrize("ours", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("command", [WELL, BADLY], ids=["ends well", "crashes"])
def test_every_command_ends_with_the_same_exit_code(vivace_here: Callable, ours: list[str], command: list[str]):
    done = vivace_here(*ours, *command)
    assert done.code == ExitCode.NOTHING == 2
    assert "Traceback" not in done.err or command is BADLY
    assert ("never imported torch" in done.err) == (command is WELL)
    assert "crash" not in done.err or command is BADLY


def test_strict_is_not_met_by_a_command_that_never_trains(vivace_here: Callable):
    done = vivace_here("run", "--strict", "--with", "bf16", *WELL)
    assert done.code == ExitCode.NOTHING
    assert "no training step was seen" in done.err
    assert vivace_here("run", "--with", "bf16", *WELL).code == 0


@pytest.mark.parametrize("ours", ["measure", "check"])
def test_the_hint_and_the_folder_are_shown(vivace_here: Callable, ours: str):
    done = vivace_here(ours, *WELL)
    assert "nothing measured: the command never imported torch" in done.err
    assert "hint: vivace comes in through PYTHONPATH" in done.err
    assert f"its output is kept in {done.folder.relative_to(done.runs.parent)}" in done.err


@pytest.mark.parametrize("ours", ["measure", "check"])
def test_quiet_still_shows_the_commands_own_error(vivace_here: Callable, ours: str):
    done = vivace_here(ours, "-q", *BADLY)
    assert "(exit code 1)" in done.err
    assert "  | ValueError: the data is broken" in done.err
    loud = vivace_here(ours, *BADLY)
    assert loud.err.count("ValueError: the data is broken") == 1


def test_too_few_steps_for_a_check_is_an_exit_code_of_its_own(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "short.py").write_text(
        "import torch; m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "m(torch.randn(8, 4)).sum().backward(); o.step()\n"
    )
    done = vivace_here("check", sys.executable, "short.py")
    assert done.code == ExitCode.NOT_ENOUGH == 3
    assert "not enough steps were measured" in done.err


def test_the_page_lists_every_exit_code():
    page = (Path(__file__).parents[2] / "docs" / "exit_codes.md").read_text()
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == [*ExitCode]


def test_the_help_lists_every_exit_code(vivace_here: Callable):
    for arguments in (["--help"], ["measure", "--help"], ["find", "loader", "--help"]):
        told = " ".join(re.sub(r"[│\s]+", " ", vivace_here(*arguments).out).split())
        line = told[told.index("Exit codes:") :]
        assert [int(code) for code in re.findall(r"(?:: |; )(\d+) ", line)] == [*ExitCode]
