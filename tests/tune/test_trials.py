"""One trial is one process: whatever becomes of it is a result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.records.trial import Outcome, Trial
from vivace.tune.short_scripts import refuse_too_short
from vivace.tune.trials import TrialSettings, run_trial

pytestmark = pytest.mark.usefixtures("forked_scripts")

SCRIPTS = Path(__file__).parent / "scripts"


def trial(folder: Path, *arguments: str, words: tuple[str, ...] = (), **settings):
    command = [sys.executable, str(SCRIPTS / "plain.py"), "--steps", "200", *arguments]
    asked = TrialSettings(**{"steps": 5, "warmup_steps": 2, **settings})
    return run_trial(command, words, folder, asked, lambda *_: None, lambda _: None)


def test_a_trial_holds_its_measurement_and_what_became_of_the_practices(tmp_path: Path):
    done = trial(tmp_path / "a", words=("channels_last", "fused_optimizer"))
    assert done.outcome == "ok"
    assert done.measurement is not None
    assert done.measurement.steps == 5
    assert str(done.measurement.practices["fused_optimizer"]) == "applied: AdamW(fused=True)"
    assert done.measurement.practices["channels_last"].applied
    assert (tmp_path / "a" / "trial.json").is_file()


@pytest.mark.parametrize(
    ("argument", "outcome", "message"),
    [("--crash-at=3", "crash", "planted crash"), ("--oom-at=3", "out-of-memory", "out of memory")],
)
def test_a_crash_and_no_memory_are_results(tmp_path: Path, argument: str, outcome: str, message: str):
    done = trial(tmp_path / "a", argument)
    assert done.outcome == outcome
    assert message in done.message


def test_one_that_deletes_its_folder_and_one_that_ends_too_early_say_so(tmp_path: Path):
    gone = trial(tmp_path / "a", "--delete", str(tmp_path / "a"))
    assert (gone.outcome, gone.measurement) == (Outcome.NO_TRAINING, None)
    assert "deleted the run's folder" in gone.message
    assert (tmp_path / "a" / "trial.json").is_file()
    for steps in ("4", "8"):  # before the window opens, and in it
        short = trial(tmp_path / f"short-{steps}", "--steps", steps, steps=50, warmup_steps=None, evidence=True)
        assert short.message == f"the script ended by itself after {steps} steps, too few to measure"
    with pytest.raises(UserError, match="the command is too short"):
        refuse_too_short(short, ("python",), 50)
    refuse_too_short(gone, ("python",), 50)


def test_a_trial_that_hangs_is_ended(tmp_path: Path):
    done = trial(tmp_path / "a", "--hang-at=3", timeout_s=10)
    assert done.outcome == "timeout"


def test_a_trial_on_disk_is_not_run_again(tmp_path: Path):
    first = trial(tmp_path / "a")
    second = trial(tmp_path / "a", "--crash-at=0")
    assert second == first


def asked_again(folder: Path, known: Trial, **settings):
    """What becomes of a trial with a record, where the command itself would fail at once."""
    folder.mkdir()
    known.save(folder / "trial.json")
    command = [sys.executable, "-c", "raise SystemExit(1)"]
    return run_trial(command, (), folder, TrialSettings(steps=5, **settings), lambda *_: None, lambda _: None)


KNOWN = Trial(
    name="a", command=("x",), practices=(), outcome="ok", seconds=1, evidence=False, seed_offset=0, grad_norms=False
)


@pytest.mark.parametrize("other", [{"seed_offset": 1}, {"evidence": True}, {"grad_norms": True}])
def test_a_trial_that_was_asked_otherwise_is_run(tmp_path: Path, other: dict):
    assert asked_again(tmp_path / "same", KNOWN) == KNOWN
    assert asked_again(tmp_path / "other", KNOWN, **other).outcome == "crash"


@pytest.mark.parametrize(("now_s", "again"), [(20.0, False), (60.0, True), (None, True)])
def test_one_that_ran_out_of_time_is_run_again_when_it_may_take_longer(tmp_path: Path, now_s: float, again: bool):
    known = KNOWN.model_copy(update={"outcome": Outcome.TIMEOUT, "timeout_s": 20.0})
    assert asked_again(tmp_path / "a", known, timeout_s=now_s).outcome == ("crash" if again else "timeout")


def test_the_same_seed_gives_the_same_losses_and_another_one_others(tmp_path: Path):
    first, again, other = (trial(tmp_path / str(n), seed_offset=o) for n, o in enumerate((0, 0, 1)))
    assert first.measurement.trajectory == again.measurement.trajectory
    assert first.measurement.trajectory != other.measurement.trajectory


def test_gradient_norms_are_taken_beside_the_timed_steps(tmp_path: Path):
    done = trial(tmp_path / "a", grad_norms=True)
    assert set(done.measurement.gradient_norms) & {0, 1}
    assert not set(done.measurement.gradient_norms) & set(range(2, 7))  # the timed ones
