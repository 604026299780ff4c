"""The janitor: at every point where a worker can be killed, its trial comes back once, and only once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import psutil
import pytest

from vivace.hpo.asked import Asked
from vivace.hpo.identity import Identity, SlurmJob, me
from vivace.hpo.leases import LEASE_VARIABLE, Leases
from vivace.hpo.ledger import Claimed, Ledger, Part
from vivace.hpo.outcome import Ended, Outcome, counts, outcome_of
from vivace.hpo.recovery import MOST_ATTEMPTS

GONE = Identity(socket.gethostname(), 2**22 + 1, 0.0, "gone")  # no process has so large a number


def _lease(folder: Path, identity: Identity) -> str:
    (folder / "workers").mkdir(exist_ok=True)
    (folder / "workers" / f"{identity.token}.json").write_text(identity.to_json())
    return identity.token


def _claim(ledger: Ledger, worker: str) -> Claimed:
    claimed = ledger.claim(worker)
    assert isinstance(claimed, Claimed)
    return claimed


def test_the_trial_of_a_killed_worker_is_run_by_the_next_one(asked: Callable[..., Asked], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, asked(trials=1))
    lost = _claim(ledger, _lease(tmp_path, GONE))
    again = _claim(ledger, _lease(tmp_path, me()))
    assert again.values == lost.values
    assert again.number == lost.number  # its folder is the same: a script that saves there goes on
    assert ledger.close(again, Outcome(Ended.COMPLETE, value=1.0))
    first, second = ledger.trials(Part.SEARCH)
    assert (counts(first), counts(second)) == (False, True)
    assert ledger.is_complete()
    assert list(ledger.leases.workers()) == [me().token]  # the lease of the dead is gone


def test_a_worker_that_was_only_slow_cannot_close_what_it_lost(asked: Callable[..., Asked], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, asked(trials=1))
    lost = _claim(ledger, _lease(tmp_path, GONE))
    again = _claim(ledger, _lease(tmp_path, me()))
    assert not ledger.close(lost, Outcome(Ended.COMPLETE, value=5.0))
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        lost.trial.report(1.0, 1)
    assert ledger.close(again, Outcome(Ended.COMPLETE, value=1.0))
    assert [trial.value for trial in ledger.trials(Part.SEARCH)] == [None, 1.0]


@pytest.mark.parametrize("step", ["asked", "signed", "noted", "noted given back", "closed"])
def test_killed_at_any_step_a_trial_is_never_lost_and_never_counted_twice(
    asked: Callable[..., Asked], tmp_path: Path, step: str
) -> None:
    ledger = Ledger(tmp_path, asked(trials=2))
    if step == "asked":
        ledger._ask(ledger.search, 0)  # killed with the lock, before it signed
    else:
        claimed = _claim(ledger, _lease(tmp_path, GONE))
        storage, number = ledger.search._storage, claimed.trial._trial_id
        if step == "noted":  # a value is known, and not told yet
            storage.set_trial_user_attr(number, "vivace:outcome", Outcome(Ended.COMPLETE, value=7.0).as_attribute())
        elif step != "signed":
            storage.set_trial_user_attr(number, "vivace:outcome", Outcome(Ended.GIVEN_BACK).as_attribute())
        if step == "closed":  # and its successor is not queued yet
            ledger.search.tell(claimed.trial, state=optuna.trial.TrialState.FAIL)
    done = []
    while isinstance(claimed := ledger.claim(_lease(tmp_path, me())), Claimed):
        done.append(claimed.values)
        ledger.close(claimed, Outcome(Ended.COMPLETE, value=1.0))
    counted = [trial for trial in ledger.trials(Part.SEARCH) if counts(trial)]
    assert len(counted) == 2
    assert all(trial.state.name == "COMPLETE" for trial in counted)
    assert len(done) == (1 if step == "noted" else 2)  # what had been run to its end is not run again


def test_values_that_kill_their_workers_are_given_up(asked: Callable[..., Asked], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, asked(trials=1))
    for n in range(MOST_ATTEMPTS):
        _claim(ledger, _lease(tmp_path, Identity(GONE.host, GONE.pid, 0.0, f"gone{n}")))
    assert not isinstance(ledger.claim(_lease(tmp_path, me())), Claimed)
    (last,) = [trial for trial in ledger.trials(Part.SEARCH) if counts(trial)]
    outcome = outcome_of(last)
    assert outcome is not None
    assert outcome.ended is Ended.WORKERS_KILLED
    assert outcome.reason == "3 workers were killed while they ran it"


def test_a_worker_that_stops_politely_may_do_so_any_number_of_times(
    asked: Callable[..., Asked], tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path, asked(trials=1))
    values = []
    for _ in range(2 * MOST_ATTEMPTS):
        claimed = _claim(ledger, _lease(tmp_path, me()))
        values.append(claimed.values)
        ledger.close(claimed, Outcome(Ended.GIVEN_BACK))
    assert all(one == values[0] for one in values)


def test_what_a_killed_worker_left_running_is_ended(asked: Callable[..., Asked], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, asked(trials=1))
    _claim(ledger, _lease(tmp_path, GONE))
    orphan = subprocess.Popen(
        [sys.executable, "-IS", "-c", "import time; time.sleep(600)"], env={**os.environ, LEASE_VARIABLE: GONE.token}
    )
    bystander = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(600)"])
    try:
        _claim(ledger, _lease(tmp_path, me()))
        assert orphan.wait() == -signal.SIGKILL
        assert psutil.pid_exists(bystander.pid)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    ("running", "gone"),
    [({"17_3": 0}, False), ({"17_3": 1}, True), ({"17_4": 0}, True), ({}, True), (None, False)],
    ids=["running", "requeued since", "another task", "no job", "Slurm is silent"],
)
def test_slurm_tells_whether_a_worker_elsewhere_is_gone(
    tmp_path: Path, running: dict[str, int] | None, gone: bool
) -> None:
    elsewhere = Identity("node7", 1, 0.0, "elsewhere", SlurmJob("17_3", 0))
    _lease(tmp_path, elsewhere)
    leases = Leases(tmp_path, jobs=lambda: running)
    leases.refresh()
    assert leases.is_gone("elsewhere") is gone


def test_without_slurm_a_worker_elsewhere_is_gone_when_its_lease_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vivace.hpo.leases.SILENT_S", 0.0)
    _lease(tmp_path, Identity("elsewhere", 1, 0.0, "far"))
    leases = Leases(tmp_path)
    path = tmp_path / "workers" / "far.json"
    assert not leases.is_gone("far")  # seen for the first time
    os.utime(path, (1, 1))  # a sign of life, by a clock that is far behind
    assert not leases.is_gone("far")
    assert leases.is_gone("far")
    assert Leases(tmp_path).is_gone("never heard of")
