"""Studies in a real Ray (skipped where it is not installed: it is no part of the development environment)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import VIVACE, Done, environment
from hpo.conftest import SCRIPTS

from vivace.errors import ExitCode
from vivace.hpo.asked import PrunerName

pytest.importorskip("ray", reason="Ray is not installed: pip install 'vivace[ray]'")

LENGTH = 18


def _result(reading: int, value: float, ended: str | None = None) -> dict[str, Any]:
    result = {"reading": reading, "value": value, "fresh": ended is None}
    return result if ended is None else {**result, "outcome/ended": ended}


class _Trial:
    def __init__(self, number: int, part: str = "search") -> None:
        self.trial_id, self.config = f"t{number}", {"vivace": {"part": part, "number": number}}


@pytest.mark.parametrize("pruner", [PrunerName.ASHA, PrunerName.AUTO, PrunerName.HYPERBAND, PrunerName.MEDIAN])
def test_ray_ends_bad_trials_only_after_a_whole_one_and_never_a_confirmation(pruner: PrunerName) -> None:
    from vivace.hpo.ray_tune.scheduler import FromTheFirstWholeTrial

    scheduler = FromTheFirstWholeTrial(pruner, "min", None)

    def play(trial: Any, value: float, until: int = LENGTH) -> int:
        """The reading at which it was stopped, or the last."""
        scheduler.on_trial_add(None, trial)
        for reading in range(1, until + 1):
            if scheduler.on_trial_result(None, trial, _result(reading, value)) == "STOP":
                scheduler.on_trial_complete(None, trial, _result(reading, value))
                return reading
        return until

    whole = _Trial(0)
    assert play(whole, 1.0) == LENGTH
    bad = _Trial(1)
    assert play(bad, 9.0, until=3) == 3  # as bad as can be, but nobody knows yet how long a trial is
    scheduler.on_trial_complete(None, whole, _result(LENGTH, 1.0, "complete"))
    for number in range(2, 6):
        good = _Trial(number)
        assert play(good, 1.0 / number) == LENGTH
        scheduler.on_trial_complete(None, good, _result(LENGTH, 1.0 / number, "complete"))
    stopped_at = [play(_Trial(number), 10.0) for number in range(6, 18)]
    assert min(stopped_at) < LENGTH
    if pruner is not PrunerName.HYPERBAND:  # which gives some of its brackets all the time
        assert max(stopped_at) < LENGTH
    assert play(_Trial(99, "confirmation"), 10.0) == LENGTH


def _begun(notes: Path) -> list[tuple[str, int]]:
    """Value and process of each command that has begun."""
    if not notes.is_file():
        return []
    return [(line.split()[1], int(line.split()[3])) for line in notes.read_text().splitlines() if line[:5] == "begin"]


def _wait(condition: Callable[[], bool], leader: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < until
        assert leader.poll() is None, leader.communicate()
        time.sleep(0.1)


@pytest.mark.slow
def test_a_killed_process_of_ray_is_replaced_and_ctrl_c_leaves_nothing_behind(
    tmp_path: Path, vivace: Callable[..., Done]
) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    command = (sys.executable, "-IS", str(SCRIPTS / "counted.py"), str(notes), "{x}", str(go))
    leader = subprocess.Popen(
        [*VIVACE, "hpo", "--engine", "ray", "--param", "x=uniform(1,2)", "--metric", "min val_loss", "--trials", "4",
         "--workers", "2", "--confirm-seeds", "0", "--name", "in-ray", "--", *command],
        cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    _wait(lambda: len(_begun(notes)) == 2, leader)
    value, pid = _begun(notes)[0]
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)  # Ray's process, which watches the command
    _wait(lambda: len(_begun(notes)) == 3, leader)
    assert _begun(notes)[2][0] == value
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    family = psutil.Process(leader.pid).children(recursive=True)
    os.killpg(leader.pid, signal.SIGINT)
    _out, err = leader.communicate(timeout=600)
    assert leader.returncode == ExitCode.INTERRUPTED, err
    psutil.wait_procs(family, timeout=60)
    assert not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    folder = tmp_path / "vivace-runs" / "in-ray-001"
    stopped = json.loads((folder / "hpo.json").read_text())
    assert stopped["given_back"] == 3  # one killed, two stopped
    go.touch()
    record = json.loads(vivace("hpo", "--resume", str(folder), "--json").out)
    assert record["engine"] == "ray"
    assert [one["state"] for one in record["trials"]] == ["complete"] * 4
    assert all(one["metric"] == pytest.approx(float(one["values"]["x"]) ** 2) for one in record["trials"])
    assert sorted(one["attempts"] for one in record["trials"]) == [1, 1, 2, 3]
