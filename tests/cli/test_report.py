"""``vivace report``: where it writes, which run it takes, and what it says when there is nothing to show."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from report.made import made_measurement, made_proof, made_trial


def test_the_page_lies_in_the_runs_folder(vivace_here: Callable, tmp_path: Path):
    run = tmp_path / "runs" / "train-001"
    (run / "trials" / "a").mkdir(parents=True)
    made_proof().save(run / "proof.json")
    made_trial("a", ()).save(run / "trials" / "a" / "trial.json")
    done = vivace_here("report", "runs/train-001")
    assert done.code == 0, done.err
    assert done.err == "report: runs/train-001/report.html\n"
    assert "2.50× faster" in (run / "report.html").read_text()


def test_without_a_folder_the_latest_run_is_taken(vivace_here: Callable, tmp_path: Path):
    for name, written_at in (("old-002", 1000), ("new-001", 2000)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        os.utime(made_measurement().save(folder / "measurement.json"), (written_at, written_at))
    (tmp_path / "runs" / "zzz-empty-001").mkdir()
    done = vivace_here("report", "-o", "mine.html")
    assert done.code == 0, done.err
    assert "new-001" in (tmp_path / "mine.html").read_text()


def test_a_record_that_is_named_stands_for_its_folder(vivace_here: Callable, tmp_path: Path):
    made_measurement().save(tmp_path / "measurement.json")
    assert vivace_here("report", "measurement.json").code == 0
    assert (tmp_path / "report.html").exists()


def test_a_folder_without_records_is_a_clear_error(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    done = vivace_here("report", "empty")
    assert done.code == 2
    assert "empty contains no vivace record" in done.err
    assert "vivace tune" in done.err
    assert "Traceback" not in done.err


def test_a_folder_of_runs_names_the_latest_of_them(vivace_here: Callable, tmp_path: Path):
    for name, written_at in (("train-002", 1000), ("eval-001", 2000)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        os.utime(made_measurement().save(folder / "measurement.json"), (written_at, written_at))
    done = vivace_here("report", "runs")
    assert done.code == 2
    assert "the latest: vivace report runs/eval-001\n" in done.err


def test_a_tune_that_is_not_finished_can_be_resumed(vivace_here: Callable, tmp_path: Path):
    folder = tmp_path / "runs" / "train-001"
    folder.mkdir(parents=True)
    (folder / "tune.json").write_text("{}")
    done = vivace_here("report", "runs/train-001")
    assert done.code == 2
    assert "vivace tune --resume runs/train-001\n" in done.err


def test_what_cannot_be_read_or_written_is_a_clear_error(vivace_here: Callable, tmp_path: Path):
    assert "does not exist" in vivace_here("report", "nowhere").err
    assert "no run with records under vivace-runs/" in vivace_here("report").err
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "proof.json").write_text("{")
    damaged = vivace_here("report", "bad")
    assert (damaged.code, "is damaged" in damaged.err) == (2, True)
    made_measurement().save(tmp_path / "measurement.json")
    unwritable = vivace_here("report", ".", "-o", "no/such/folder/x.html")
    assert (unwritable.code, "cannot write" in unwritable.err) == (2, True)


def test_a_damaged_trial_is_told_and_the_rest_is_shown(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "trials" / "a").mkdir(parents=True)
    (tmp_path / "trials" / "a" / "trial.json").write_text('{"kind": "trial", "schema_version": 1}')
    made_proof().save(tmp_path / "proof.json")
    assert vivace_here("report", ".").code == 0
    assert "a/trial.json is damaged" in (tmp_path / "report.html").read_text()
