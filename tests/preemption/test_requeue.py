"""``requeue`` in a batch script of one's own, with a ``scontrol`` that is down, comes back, or refuses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vivace.preemption import requeue

# Answers one line of the file a call: the exit code, and what it says.
SCONTROL = """#!/bin/bash
echo "$*" >>{folder}/asked
read -r code said <{folder}/answers
sed -i 1d {folder}/answers
echo "$said" >&$((code ? 2 : 1))
exit "$code"
"""
DOWN = "1 slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
RUNS, WAITS, TAKEN = "0 JobId=17 JobName=JobState=x JobState=RUNNING Reason=None", "0 JobState=PENDING", "0"


class Slurm:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.pauses_s = folder, list[float]()
        (folder / "scontrol").write_text(SCONTROL.format(folder=folder))
        (folder / "scontrol").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        for name in ("SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME"):
            monkeypatch.delenv(name, raising=False)
        self._began_s = time.time()
        monkeypatch.setattr("vivace.preemption.requeueing.time", self)

    def time(self) -> float:
        return self._began_s + sum(self.pauses_s)

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)

    def answers(self, *lines: str) -> None:
        (self.folder / "answers").write_text("".join(f"{line}\n" for line in lines))

    @property
    def asked(self) -> list[str]:
        return [line.split()[-3 if "show" in line else 0] for line in (self.folder / "asked").read_text().splitlines()]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(tmp_path, monkeypatch)


def test_a_controller_that_is_down_is_asked_with_growing_pauses(slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    slurm.answers(*[DOWN] * 6, RUNS, TAKEN, WAITS)
    assert requeue() == "job 17 is requeued (restart 1 of at most 10)"
    assert slurm.pauses_s == [5, 10, 20, 40, 60, 60]
    assert slurm.asked == ["show"] * 7 + ["requeue", "show"]
    assert capsys.readouterr().err.count("Unable to contact slurm controller") == 6


def test_it_is_asked_for_as_long_as_the_job_may_run(slurm: Slurm, monkeypatch: pytest.MonkeyPatch):
    slurm.answers(*[DOWN] * 100)
    assert requeue().startswith("Slurm did not answer, so job 17 is not requeued: slurm_load_jobs error")
    assert 1400 < sum(slurm.pauses_s) <= 1500  # without its end, less than the other ranks wait in their barrier
    slurm.pauses_s.clear()
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(slurm.time()) + 100))
    slurm.answers(*[DOWN] * 100)
    assert requeue().startswith("Slurm did not answer")
    assert slurm.pauses_s == [5, 10, 20, 40]


def test_a_job_whose_time_ended_while_it_saved_goes_on(slurm: Slurm):
    ends = "0 JobState=COMPLETING Reason=TimeLimit Dependency=(null)"
    slurm.answers(ends, TAKEN, ends)
    assert requeue() == "job 17 is requeued (restart 1 of at most 10)"
    slurm.answers("0 JobState=COMPLETING Reason=None Dependency=(null)")
    assert requeue() == "not requeued: the job is COMPLETING"


def test_a_refusal_is_no_silence(slurm: Slurm):
    refused = "1 Requested operation is presently disabled"
    slurm.answers(RUNS, refused, RUNS, refused, RUNS, refused)
    assert requeue() == "scontrol could not requeue job 17: Requested operation is presently disabled"
    assert slurm.pauses_s == [5, 5]
    for state in ("0 JobState=CANCELLED", "1 slurm_load_jobs error: Invalid job id specified"):
        slurm.answers(state)
        assert requeue().startswith("not requeued: the job is ")
