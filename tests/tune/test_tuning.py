"""A whole tune, on a job whose limit is known: its loader sleeps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import interrupted
from forked.process import PYTHON
from report.made import made_trial

from vivace.errors import ExitCode
from vivace.tune import bench
from vivace.tune.tuning import Interrupted, Options, tune

SCRIPTS = Path(__file__).parent / "scripts"
OPTIONS = ("--steps", "8", "--rounds", "2", "--budget", "15")  # on a very busy machine it takes many minutes
# 160 ms of loading for 5 ms of work: several workers make it several times as fast, however busy the machine is.
SLOW_LOADER = (PYTHON, str(SCRIPTS / "slow_loader.py"), "--load-ms", "40", "--think-ms", "5")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_tune_finds_the_loader_proves_the_gain_and_goes_on_where_it_stopped(vivace_here, tmp_path: Path):
    done = vivace_here("tune", "--json", *OPTIONS, "--", *SLOW_LOADER)
    assert done.code == 0, done.err
    proof = done.record
    (gain,) = [g for g in proof["practices"] if g["practice"].startswith("workers=")]
    assert gain["risk"] == "exact"
    assert proof["speedup"]["low"] > 1.0
    assert proof["losses_in_band"] is True
    harm = proof["harm"]
    assert harm["seeds"] == harm["rounds"] + 1  # the search ran the set, too
    assert proof["before"]["samples_per_s"] < proof["after"]["samples_per_s"]
    assert f"--with {','.join(g['practice'] for g in proof['practices'])}" in proof["run_with"]
    folder = done.folder
    assert json.loads((folder / "proof.json").read_text()) == proof
    assert (folder / "tune.json").stat().st_mode & 0o077 == 0  # the command as typed may hold a secret
    assert {t.name for t in (folder / "trials").iterdir()} == set(proof["trials"])

    # Nothing is measured twice: the same proof, from the trials on disk.
    before = {t: (t / "trial.json").stat().st_mtime_ns for t in (folder / "trials").iterdir()}
    again = vivace_here("tune", "--json", "--resume", str(folder))
    assert again.code == 0, again.err
    assert again.record | {"notes": []} == proof | {"notes": []}  # notes name the folder as it was given
    assert before == {t: (t / "trial.json").stat().st_mtime_ns for t in (folder / "trials").iterdir()}

    # And the winner can be run.
    run = vivace_here(
        "run", "--with", f"@{folder}", "--", PYTHON, str(SCRIPTS / "plain.py"), "--exit", "3", cwd=tmp_path
    )
    assert run.code == 3


def test_an_interrupted_tune_names_its_folder_not_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "run_trial", lambda *_: made_trial("000-baseline", (), None, outcome="interrupted"))
    newer = tmp_path / "zzz-001"
    newer.mkdir()
    (newer / "tune.json").write_text("{}")
    with pytest.raises(Interrupted) as caught:
        tune(Options(("python",)), tmp_path, "mine", None, lambda *_: None, lambda _: None, lambda _: None)
    assert caught.value.folder == tmp_path / "mine-001"


@pytest.mark.slow
def test_ctrl_c_prints_the_best_set_so_far_and_that_it_is_not_proved(tmp_path: Path):
    def the_proof_has_begun() -> bool:
        return any(tmp_path.glob("vivace-runs/*/trials/*-round0-*"))

    done = interrupted(["tune", *OPTIONS, "--", *SLOW_LOADER], tmp_path, the_proof_has_begun)
    assert done.code == ExitCode.INTERRUPTED
    said = re.search(r"best so far, not proved: (\S*workers=\d+\S*) \((.+) ms per step instead of (.+)\)", done.err)
    assert said is not None, done.err
    assert float(said[2]) < float(said[3])
    assert "continue with: vivace tune --resume" in done.err


def test_a_command_that_does_not_train_is_told_at_once(vivace):
    done = vivace("tune", "--", PYTHON, str(SCRIPTS / "plain.py"), "--crash-at", "0")
    assert done.code == 2
    assert "does not train" in done.err
    assert "planted crash" in done.err
    assert "Traceback" not in done.err


def test_a_command_that_needs_longer_than_the_budget_for_its_first_steps_is_told(vivace_here):
    command = (PYTHON, str(SCRIPTS / "plain.py"), "--hang-at", "2")
    done = vivace_here("tune", "--budget", "0.1", "--", *command)
    assert done.code == 2
    assert "did not finish 20 steps" in done.err
    assert "--budget" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "0", "--", "python"), "--budget must be above 0"),
        (("--allow", "everything", "--", "python"), "no such risk"),
        (("--resume", "nowhere"), "contains no tune"),
        (("--rounds", "0", "--", "python"), "--rounds must be 1 or more"),
        (("--harm-steps", "0", "--", "python"), "--harm-steps must be 1 or more"),
        (("--timeout", "-1", "--", "python"), "--timeout must be above 0"),
        (("--slurm", "--comment='x", "--", "python"), "is not a list of options: no closing quotation"),
    ],
)
def test_mistakes_are_sentences(vivace_here, arguments: tuple[str, ...], message: str):
    done = vivace_here("tune", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
