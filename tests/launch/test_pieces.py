"""The pieces of a job, and its page."""

from __future__ import annotations

import sys
from pathlib import Path

from launch.conftest import Bench

from vivace.launch.pieces import Piece, joined


def test_a_measurement_belongs_to_the_piece_that_had_begun_last():
    pieces = [Piece("completed", "2026-01-01T10:00:00"), Piece("running", "2026-01-01T12:00:00")]
    measured = [("2026-01-01T12:05:00", 30.0), ("2026-01-01T11:00:00", 20.0), ("2026-01-01T10:01:00", 10.0)]
    assert [piece.samples_per_s for piece in joined(pieces, measured)] == [20.0, 30.0]
    assert joined(pieces, [("2026-01-01T09:00:00", 5.0)]) == pieces


def test_without_a_start_no_measurement_is_claimed():
    assert (
        joined([Piece("completed", end="2026-01-01T10:00:00")], [("2026-01-01T09:00:00", 5.0)])[0].samples_per_s is None
    )


def test_the_page_of_a_job(bench: Bench):
    record = bench.submit("--name", "paged", command=[sys.executable, "-c", "raise SystemExit(3)"])
    assert bench.end(record) == "FAILED"
    (Path(record["folder"]) / f"{record['job_id']}.saved").write_text("2026-01-01T10:00:00\n2026-01-01T11:00:00\n")
    done = bench.vivace("report", record["job_id"])
    assert done.returncode == 0, done.stderr
    page = (Path(record["folder"]) / "job.html").read_text()
    assert f"Job {record['job_id']}: failed" in page
    assert "the command failed with exit code 3" in page
    assert "3 pieces" in page  # two that saved, and the last one
    assert "2026-01-01 11:00:00" in page
    assert bench.vivace("report", "no-such-job").returncode == 2
