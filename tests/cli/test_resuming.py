"""``--resume``: what may stand beside it, the budget that is kept, the folder that is named after Ctrl-C."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import interrupted
from typer.testing import CliRunner

from vivace.cli.app import application
from vivace.errors import UserError

PLAIN = Path(__file__).parents[1] / "tune" / "scripts" / "plain.py"


def refused(*arguments: str) -> UserError:
    result = CliRunner().invoke(application(arguments), arguments)
    assert isinstance(result.exception, UserError), result.exception
    return result.exception


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("tune", "--steps", "0"), "--steps"),  # also where it is what the default would be
        (("tune", "--rounds", "5"), "--rounds"),
        (("tune", "--allow", "algorithmic"), "--allow"),
        (("tune", "--timeout", "9"), "--timeout"),
        (("tune", "--slurm", "--gpus=1"), "--slurm"),
        (("tune", "--name", "x"), "--name"),
        (("tune", "-o", "elsewhere"), "--output"),
        (("find", "batch", "--flag", "-b"), "--flag"),
        (("find", "batch", "--values", "1,2"), "--values"),
        (("find", "batch", "--margin", "1GiB"), "--margin"),
        (("find", "loader", "--steps", "3"), "--steps"),
        (("find", "loader", "--timeout", "9"), "--timeout"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(arguments: tuple[str, ...], option: str):
    error = refused(*arguments, "--resume", "runs/x-001")
    assert error.message.startswith(f"{option} cannot be changed with --resume")
    assert error.hint is not None
    assert error.hint.startswith(f"leave out {option}")


@pytest.mark.parametrize("command", [("tune",), ("find", "batch")])
def test_a_command_beside_it_is_refused(command: tuple[str, ...]):
    error = refused(*command, "--resume", "runs/x-001", "--", "python")
    assert error.message == "--resume takes its command from the folder"


@pytest.mark.parametrize("command", [("tune",), ("find", "batch"), ("find", "loader")])
def test_a_budget_json_and_the_environment_are_not(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VIVACE_RUNS", "elsewhere")
    error = refused(*command, "--resume", "runs/x-001", "--budget", "3", "--json", "-v")
    assert error.message.startswith("runs/x-001 contains no ")


def test_after_ctrl_c_the_hint_names_the_folder_and_the_new_budget_is_kept(tmp_path: Path):
    folder, another = tmp_path / ("long-" * 20) / "train-001", tmp_path / "runs" / "newer-001"
    for each in (folder, another):
        each.mkdir(parents=True)
        options = {"command": [sys.executable, str(PLAIN), "--hang-at", "2"], "budget_s": 60.0}
        (each / "tune.json").write_text(json.dumps(options))
    done = interrupted(
        ["tune", "--resume", str(folder), "--budget", "7"], tmp_path, lambda: any(folder.glob("trials/*/stdout.log"))
    )
    assert done.code == 130, done.err
    assert f"continue with: vivace tune --resume {folder}\n" in done.err
    kept = folder / "tune.json"
    assert json.loads(kept.read_text())["budget_s"] == 420.0
    assert kept.stat().st_mode & 0o777 == 0o600
