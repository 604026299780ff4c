"""``--resume`` goes on with the same job only."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.tune.same_job import refuse_another_job, this_job


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")
    return (sys.executable, "train.py", "--lr", "0.1", "x" * 5000)


def refusal(before, command, in_queue: bool = False) -> str:
    with pytest.raises(UserError) as error:
        refuse_another_job(before, command, in_queue)
    assert error.value.hint
    return error.value.message


def test_the_same_job_goes_on_and_so_does_one_of_an_older_vivace(command):
    refuse_another_job(this_job(command), command, in_queue=False)
    refuse_another_job(None, command, in_queue=False)


def test_a_script_that_was_edited_is_another_job(command):
    before = this_job(command)
    Path("train.py").write_text("print(2)")
    assert refusal(before, command) == "train.py has changed since it was started"


def test_another_folder_is_another_job(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = this_job(command)
    (tmp_path / "else where").mkdir()
    monkeypatch.chdir(tmp_path / "else where")
    assert refusal(before, command) == f"it was started in {tmp_path}"


def test_another_machine_is_another_job_unless_a_queue_chooses_it(command):
    before = replace(this_job(command), gpus=("NVIDIA H200",))
    assert "started on a machine with NVIDIA H200 and" in refusal(before, command)
    refuse_another_job(before, command, in_queue=True)


def test_data_may_change(command):
    Path("data.bin").write_bytes(bytes(2**21))
    before = this_job((*command, "data.bin"))
    Path("data.bin").write_bytes(b"")
    refuse_another_job(before, (*command, "data.bin"), in_queue=False)
