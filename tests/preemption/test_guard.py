"""When the guard says save and when it says stop: by steps, by minutes, by signals, by the job script's file."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from vivace.preemption import Preemption, guard, save_atomically
from vivace.preemption.job_files import VARIABLE, JobState, JobWord, read_state


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(guard, "time", made)
    return made


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in guard.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the job's files, without their endings, as the job script gives it."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "17"))
    monkeypatch.setenv("VIVACE_REQUEUE_BY", "script")
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "17"


def state(job: Path) -> JobState | None:
    return read_state(Path(f"{job}.state"))


def test_saves_are_due_every_so_many_steps():
    with Preemption(save_every_steps=3) as made:
        assert [made.should_save() for _ in range(7)] == [False, False, True, False, False, True, False]
        assert not made.stopping


def test_saves_are_due_every_so_many_minutes_since_the_last_one(clock: Clock):
    with Preemption(save_every_minutes=2) as made:
        answers = []
        for _ in range(6):
            clock.now_s += 50
            answers.append(made.should_save())
        assert answers == [False, False, True, False, False, True]


def test_a_signal_saves_and_stops():
    with Preemption() as made:
        assert not made.should_save()
        os.kill(os.getpid(), signal.SIGTERM)
        assert made.should_save()
        assert made.stopping


@pytest.mark.parametrize("wrong", [{"save_every_steps": 0}, {"save_every_minutes": -1}])
def test_an_interval_of_nothing_is_refused(wrong: dict[str, int]):
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(ValueError, match="must be above 0"):
        Preemption(**wrong)
    assert signal.getsignal(signal.SIGUSR1) is before


def test_the_job_scripts_word_is_heard_within_seconds(clock: Clock, job: Path):
    made = Preemption()
    assert state(job) == JobState(JobWord.LISTENING)
    Path(f"{job}.told").touch()
    assert not made.should_stop()  # it looks every two seconds, not at every step
    clock.now_s += guard.LOOK_EVERY_S
    assert made.should_stop()
    save_atomically(1, f"{job}.pt", lambda _state, file: file.write(b"x"))
    with pytest.raises(SystemExit) as ended:
        made.requeue_and_exit()
    assert ended.value.code == 85
    assert state(job) == JobState(JobWord.SAVED, f"{os.path.realpath(job)}.pt")


def test_a_warning_that_came_before_anything_listened_is_heard(job: Path):
    Path(f"{job}.told").touch()
    assert Preemption().should_stop()


def test_ranks_that_torchrun_starts_again_after_they_saved_stop_again(job: Path):
    Path(f"{job}.state").write_text("saved\n/x.pt\n")
    made = Preemption()
    assert state(job) == JobState(JobWord.SAVED, "/x.pt")  # should they die now, the job still starts again
    assert made.should_stop()


def test_a_finished_training_says_so(job: Path):
    with Preemption():
        pass
    assert state(job) == JobState(JobWord.DONE)


def test_other_ranks_and_unwritable_folders_are_silent(job: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, str(job / "no" / "such" / "folder"))
    with Preemption() as made:
        assert not made.should_stop()
    monkeypatch.setenv(VARIABLE, str(job))
    monkeypatch.setenv("RANK", "1")
    with Preemption():
        assert state(job) is None


def test_a_full_disk_does_not_keep_the_last_word_back(job: Path, monkeypatch: pytest.MonkeyPatch):
    """torchrun makes another exit code of ours: without the word the job would count as crashed."""
    made = Preemption()
    save_atomically(1, f"{job}.pt", lambda _state, file: file.write(b"x"))

    def no_room(file: Path, _text: str) -> int:
        file.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    monkeypatch.setattr(Path, "write_text", no_room)
    with pytest.raises(SystemExit):
        made.requeue_and_exit()
    assert state(job) == JobState(JobWord.SAVED, f"{os.path.realpath(job)}.pt")
    assert sorted(file.name for file in job.parent.iterdir()) == ["17.pt", "17.state"]


def test_a_block_that_is_left_by_an_error_or_by_an_interruption_is_not_done(job: Path):
    with pytest.raises(ValueError, match="broken"), Preemption():
        raise ValueError("broken")
    assert state(job) == JobState(JobWord.LISTENING)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with pytest.raises(SystemExit), Preemption() as made:
        made.requeue_and_exit()
    assert state(job) == JobState(JobWord.SAVED)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # srun ends the slower ranks with it


def test_close_after_an_interruption_does_not_say_done(job: Path):
    made = Preemption()
    with pytest.raises(SystemExit), contextlib.closing(made):
        made.requeue_and_exit()
    assert state(job) == JobState(JobWord.SAVED)
