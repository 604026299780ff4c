"""Where vivace's own options end and the user's command begins."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forked.process import PYTHON
from typer.testing import CliRunner

from vivace.cli.app import application
from vivace.cli.command import training_command
from vivace.errors import UserError

SAYS_ITS_WORDS = "import json, sys; print(json.dumps(sys.argv[1:]))\n"


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(SAYS_ITS_WORDS)
    return "train.py"


@pytest.mark.parametrize("separator", [[], ["--"]], ids=["bare", "with --"])
def test_options_before_the_command_are_vivaces_and_those_after_it_the_scripts(
    vivace: Callable, script: str, separator: list[str]
):
    words = ["--steps", "30", "--json", "--", "-q", "--help"]
    done = vivace("measure", "--steps", "20", "--name", "mine", *separator, PYTHON, script, *words)
    assert json.loads(done.out) == words
    assert done.folder.name == "mine-001"


@pytest.mark.parametrize("command", [["measure"], ["check"], ["run"], ["tune"], ["submit"], ["find", "loader"]])
def test_no_sub_command_takes_an_option_of_the_command(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """``--output`` is an option of them all; here it belongs to the script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = [*command, "--output", "first", "no-such-program", "--output", "second", "--no-such-option"]
    result = CliRunner().invoke(application(arguments), arguments)
    assert "No such option" not in result.output
    assert not (tmp_path / "second").exists()


def test_an_unknown_option_before_the_command_is_still_an_error(vivace_here: Callable, script: str):
    done = vivace_here("measure", "--stepz", "3", sys.executable, script)
    assert done.code == 2
    assert "--stepz" in done.err


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["env", "PYTHONPATH=.", "python", "a.py"], "PYTHONPATH=. vivace … python a.py"),
        (["/usr/bin/env", "A=1", "PYTHONPATH=b c", "python", "a.py"], "'PYTHONPATH=b c' vivace … env A=1 python a.py"),
    ],
)
def test_an_env_that_would_keep_vivace_out_is_refused(words: list[str], instead: str):
    """It trained to its end, unmeasured."""
    with pytest.raises(UserError) as caught:
        training_command(words)
    assert caught.value.hint == f"set it before vivace: {instead}"


def test_any_other_env_stays_as_it_is():
    words = ["env", "CUDA_VISIBLE_DEVICES=0", "python", "a.py", "PYTHONPATH=."]
    assert training_command(words) == words


def test_run_says_where_with_belongs(vivace_here: Callable, script: str):
    done = vivace_here("run", sys.executable, script, "--with", "bf16")
    assert done.code == 2
    assert "vivace run --with bf16 python train.py" in done.err


def test_a_script_alone_is_run_by_the_python_of_the_path(vivace: Callable, script: str, tmp_path: Path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\necho mine\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    done = vivace("measure", script, "--lr", "1", PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
    assert done.out == 'mine\n["--lr", "1"]\n'


def test_what_can_be_started_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    executable = tmp_path / "start.py"
    executable.write_text("#!/usr/bin/env python3\n")
    executable.chmod(0o755)
    assert training_command(["./start.py", "-b", "8"]) == ["./start.py", "-b", "8"]
    assert training_command(["start.py"])[1:] == ["start.py"]  # a shell would not find it without the ./
    assert training_command(["missing.py"]) == ["missing.py"]
    assert training_command(["torchrun", "start.py"]) == ["torchrun", "start.py"]
    assert training_command([]) == []
