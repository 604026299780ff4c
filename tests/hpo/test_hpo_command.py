"""``vivace hpo`` as a person uses it: real processes, Ctrl-C, resume, and mistakes told in one sentence."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from conftest import Done, environment, interrupted
from hpo.conftest import SCRIPTS

from vivace.errors import ExitCode
from vivace.hpo.asked import Asked
from vivace.hpo.ledger import Ledger, Part
from vivace.hpo.space import Real, Whole
from vivace.hpo.summary import summarize
from vivace.hpo.worker import work
from vivace.preemption import EXIT_INTERRUPTED

PYTHON = (sys.executable, "-IS")
EXAMPLE = Path(__file__).parents[2] / "examples" / "himmelblau.py"  # of the lab
HIMMELBLAU = (*PYTHON, str(EXAMPLE), "--x", "{x}", "--y", "{y}")
SPACE = ("--param", "x=uniform(-5,5)", "--param", "y=uniform(-5,5)", "--metric", "min val_loss")


def test_a_study_from_the_command_line_to_its_page(vivace: Callable[..., Done]) -> None:
    done = vivace(
        "hpo", *SPACE, "--trials", "8", "--workers", "2", "--default", "x=0,y=0", "--confirm-seeds", "2", "--json",
        "--", *HIMMELBLAU,
    )  # fmt: skip
    record = json.loads(done.out)
    assert done.code == 0
    assert record["complete"]
    assert len(record["trials"]) == 8
    assert record["confirmation"]["baseline"]["metric"] == [170.0, 170.0]
    assert "2 trials share this folder" in done.err
    assert "trial 0: complete, val_loss 170.0, x=0.0, y=0.0" in done.err
    page = (done.folder / "report.html").read_text()
    assert all(f'id="{section}"' in page for section in ("headline", "history", "slices", "trials", "confirmation"))
    assert record["best_command"].split()[-3::2] == list(record["trials"][record["best"]]["values"].values())
    assert len((done.folder / "trials.csv").read_text().splitlines()) == 9
    again = vivace("hpo", "--resume", str(done.folder), "--trials", "9", "--json")
    assert len(json.loads(again.out)["trials"]) == 9


def test_ctrl_c_gives_the_trial_back_and_resume_runs_it(tmp_path: Path, vivace: Callable[..., Done]) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    command = (*PYTHON, str(SCRIPTS / "counted.py"), str(notes), "{x}", str(go))
    options = ("--param", "x=uniform(1,2)", "--metric", "min val_loss", "--trials", "3", "--confirm-seeds", "0")
    stopped = interrupted(["hpo", *options, "--", *command], tmp_path, notes.is_file)
    assert stopped.code == ExitCode.INTERRUPTED
    assert f"continue with: vivace hpo --resume vivace-runs/{stopped.folder.name}" in stopped.err
    assert not [p for p in psutil.process_iter() if str(notes) in _words(p)]  # nothing runs on
    record = json.loads((stopped.folder / "hpo.json").read_text())
    assert not record["complete"]
    assert record["given_back"] == 1
    assert [(one["state"], one["attempts"]) for one in record["trials"]] == [("waiting", 2)]
    changed = vivace("hpo", "--resume", str(stopped.folder), "--trial-limit", "1s")
    assert "--trial-limit cannot be changed with --resume" in changed.err
    go.touch()
    resumed = json.loads(vivace("hpo", "--resume", str(stopped.folder), "--json").out)
    assert resumed["complete"]
    assert [one["state"] for one in resumed["trials"]] == ["complete"] * 3
    begun = [line.split()[1] for line in notes.read_text().splitlines() if line.startswith("begin")]
    assert begun[0] == begun[1] == resumed["trials"][0]["values"]["x"]  # the interrupted one comes first
    assert len(begun) == 4


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*SPACE, "--", *HIMMELBLAU[:-2]), "the parameter y is nowhere in the command"),
        (("--param", "x=log(0,1)", "--metric", "min a", "--", "true", "{x}"), "must begin above 0"),
        (("--param", "x=log(1,2)", "--", "true", "{x}"), "what is to be optimised?"),
        (("--param", "x=log(1,2)", "--metric", "val_loss", "--", "true", "{x}"), "is not a goal"),
        ((*SPACE, "--budget", "3apples", "--", *HIMMELBLAU), "is not a budget"),
        ((*SPACE, "--budget", "3gpuh", "--gpus-per-trial", "0", "--", *HIMMELBLAU), "the trials use no GPU"),
        ((*SPACE, "--confirm-seeds", "1", "--", *HIMMELBLAU), "one seed gives no interval"),
        ((*SPACE, "--storage", "postgresql://me:secret@host/db", "--", *HIMMELBLAU), "holds a password"),
        ((*SPACE, "--storage", "journal.log", "--", *HIMMELBLAU), "is not a URL"),
        ((*SPACE, "--", "no-such-program", "{x}", "{y}"), "no-such-program was not found"),
        (("--resume", "nowhere"), "contains no study"),
    ],
)
def test_a_mistake_is_one_sentence(vivace_here: Callable[..., Done], words: tuple[str, ...], says: str) -> None:
    done = vivace_here("hpo", *words)
    assert done.code == ExitCode.NOTHING
    assert says in done.err
    assert "Traceback" not in done.err
    assert "secret" not in done.err


def test_a_study_whose_command_is_wrong_stops_soon_and_says_why(vivace: Callable[..., Done]) -> None:
    done = vivace("hpo", *SPACE, "--trials", "40", "--", *PYTHON, str(SCRIPTS / "moody.py"), "crash", "{x}", "{y}")
    assert done.code == ExitCode.NOTHING
    assert "the first 5 trials all failed; the last one: exit code 1: out of coffee" in done.err


def test_a_slurm_worker_that_is_warned_of_its_time_limit_gives_its_trial_back_and_asks_to_be_requeued(
    asked: Callable[..., Asked], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    command = (*PYTHON, str(SCRIPTS / "counted.py"), str(notes), "{x}{y}", str(tmp_path / "never"))
    made = asked(command=command, reals=(Real("x", 1, 2),), wholes=(Whole("y", 1, 9),), trials=1)
    worker = subprocess.Popen(
        [sys.executable, "-m", "vivace", "hpo", "--join", str(tmp_path)],
        env=environment(SLURM_JOB_ID="18", SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="3"),
    )
    while not notes.is_file():
        assert worker.poll() is None
        time.sleep(0.05)
    (lease,) = (tmp_path / "workers").glob("*.json")
    assert json.loads(lease.read_text())["job"] == {"id": "17_3", "restart": 0}
    worker.send_signal(signal.SIGUSR1)
    assert worker.wait() == EXIT_INTERRUPTED
    states = [trial.state.name for trial in Ledger(tmp_path, made).trials(Part.SEARCH)]
    assert states == ["FAIL", "WAITING"]
    assert not lease.exists()


def test_practices_ride_along(asked: Callable[..., Asked], tmp_path: Path) -> None:
    """As ``vivace run --with`` passes them: the request for the process is in its environment."""
    code = (
        "import os, sys; print('val_loss', len(sys.argv[1]) if 'channels_last' in os.environ['VIVACE_INSIDE'] else 'x')"
    )
    made = asked(command=(*PYTHON, "-c", code, "{x}{y}"), practices=("channels_last",), trials=1)
    ledger = Ledger(tmp_path, made)
    work(tmp_path)
    record = summarize(ledger)
    assert [one.state for one in record.trials] == ["complete"]
    assert " -m vivace run --with channels_last -- " in record.best_command


def test_neither_the_command_nor_its_workers_import_torch() -> None:
    code = (
        "import sys, vivace.cli.hpo, vivace.hpo.worker, vivace.hpo.leading, vivace.hpo.journal; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
