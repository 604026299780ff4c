"""``VIVACE_RUNS``: where one command writes, the others look."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from report.made import made_measurement
from typer.testing import CliRunner

from vivace.cli.app import application
from vivace.records.run import Run


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """The folder of a job that was sent."""
    folder = tmp_path / "elsewhere" / "train-001"
    folder.mkdir(parents=True)
    files = {"stdout": str(folder / "%j.out"), "stderr": str(folder / "%j.err")}
    run = Run(
        command=("python",), launcher="slurm", name="train", job_id="77", state="queued", folder=str(folder), **files
    )
    run.save(folder / "run.json")
    return folder


def output_of(*arguments: str, runs: Path) -> str:
    result = CliRunner().invoke(application(arguments), arguments, env={"VIVACE_RUNS": str(runs)})
    assert result.exit_code == 0, result.exception
    return result.output


def test_logs_looks_there(sent: Path):
    assert output_of("logs", "train", "--path", runs=sent.parent) == f"{sent / '77.out'}\n"


def test_inside_a_job_it_is_the_runs_own_folder(sent: Path):
    assert output_of("logs", "train", "--path", runs=sent) == f"{sent / '77.out'}\n"


def test_status_looks_there(sent: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vivace.cli.status.ask_tasks", lambda _job: [])
    monkeypatch.setattr("vivace.cli.status.energy_j", lambda _job: None)
    assert '"job_id": "77"' in output_of("status", "train", "--json", runs=sent.parent)


@pytest.mark.parametrize("command", ["submit", "status", "logs", "report"])
def test_the_help_names_it(command: str):
    assert (
        "VIVACE_RUNS" in CliRunner().invoke(application([command]), [command, "--help"], env={"COLUMNS": "200"}).output
    )


def test_report_takes_the_latest_run_there(vivace_here: Callable, tmp_path: Path):
    folder = tmp_path / "elsewhere" / "train-001"
    folder.mkdir(parents=True)
    made_measurement().save(folder / "measurement.json")
    done = vivace_here("report", VIVACE_RUNS="elsewhere")
    assert done.code == 0, done.err
    assert done.err == "report: elsewhere/train-001/report.html\n"


def test_the_default_is_not_tensorboards_folder(vivace_here: Callable, tmp_path: Path):
    vivace_here("measure", "--", "true")
    assert [path.name for path in tmp_path.iterdir()] == ["vivace-runs"]


def test_records_in_the_folder_of_earlier_versions_are_found(sent: Path, vivace_here: Callable, tmp_path: Path):
    """And a newer record wins, wherever it is."""
    sent.parent.rename(tmp_path / "runs")
    old, new = tmp_path / "runs" / "train-001", tmp_path / "vivace-runs" / "train-001"
    os.utime(made_measurement().save(old / "measurement.json"), (2000, 2000))
    assert vivace_here("logs", "train", "--path").out == f"{sent / '77.out'}\n"
    assert vivace_here("report").err == "report: runs/train-001/report.html\n"
    new.mkdir(parents=True)
    os.utime(made_measurement().save(new / "measurement.json"), (3000, 3000))
    assert vivace_here("report").err == "report: vivace-runs/train-001/report.html\n"
    assert "under elsewhere/" in vivace_here("report", VIVACE_RUNS="elsewhere").err
