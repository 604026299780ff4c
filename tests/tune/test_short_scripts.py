"""Scripts that end by themselves: what was timed counts, and too little is told with what would suffice."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from report.made import made_measurement, made_trial

from vivace.errors import UserError
from vivace.protocol.ending import Ending
from vivace.records.measurement import Measurement
from vivace.records.trial import Outcome
from vivace.tune.short_scripts import has_enough, refuse_too_short, shorter_than_asked
from vivace.tune.trials import TrialSettings, run_trial

PLAIN = Path(__file__).parent / "scripts" / "plain.py"


def ended(steps: int, warmup_steps: int = 20, opened: bool = True) -> Measurement:
    fields = {"status": "partial", "ending": Ending.ENDED_BY_ITSELF, "reason": "the script ended by itself"}
    opening = {"before_window_s": 1.0 if opened else None}
    return made_measurement(10.0, **fields, **opening, steps=steps, warmup_steps=warmup_steps)


@pytest.mark.parametrize(
    ("steps", "asked", "opened", "enough"),
    [(80, 100, True, True), (10, 100, True, True), (9, 100, True, False), (5, 5, True, True), (80, 100, False, False)],
)
def test_ten_timed_steps_are_enough_and_steps_of_the_warm_up_are_none(
    steps: int, asked: int, opened: bool, enough: bool
):
    assert has_enough(ended(steps, opened=opened), asked) is enough


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--steps", "25"), "--steps 60 in place of --steps 25"),  # 20 of warm-up, 20 timed, 20 to look closer
        (("--max_iters=25", "--lr", "1"), "--max_iters=60 in place of --max_iters=25"),
        (("trainer.max_steps=25",), "trainer.max_steps=60 in place of trainer.max_steps=25"),
        (("--epochs", "5"), "--epochs 12 in place of --epochs 5"),
        (("--warmup-steps", "5", "--log_steps=3"), "let it train for longer, or ask for fewer --steps"),
    ],
)
def test_what_would_suffice_is_told_with_the_flag_that_sets_it(arguments: tuple[str, ...], hint: str):
    own = made_trial("own", (), None, outcome="crash", measurement=ended(5))
    with pytest.raises(UserError, match="ended by itself after 25 steps, and vivace needs about 60") as caught:
        refuse_too_short(own, ("python", "train.py", *arguments), asked_steps=20)
    assert caught.value.hint == hint


def test_a_script_that_leaves_enough_is_not_refused_and_what_it_leaves_is_said():
    own = made_trial("own", (), None, measurement=ended(80))
    command = ("python", "train.py", "--steps", "100")
    refuse_too_short(own, command, asked_steps=100)
    said = shorter_than_asked(ended(80), command, asked_steps=100)
    assert said is not None
    assert said.startswith("the script ends by itself after 100 steps: 80 of them were timed, not 100; 140 steps")
    assert "--steps 140 in place of --steps 100" in said
    assert shorter_than_asked(made_measurement(10.0), command, asked_steps=100) is None


def test_a_trial_whose_script_ends_early_keeps_what_was_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [sys.executable, str(PLAIN), "--steps", "40"]
    asked = TrialSettings(steps=100, warmup_steps=5)
    done = run_trial(command, ("fused_optimizer",), tmp_path / "a", asked, lambda *_: None, lambda _: None)
    assert done.outcome is Outcome.OK
    assert done.measurement is not None
    assert (done.measurement.status, done.measurement.steps) == ("partial", 35)
    assert done.measurement.practices["fused_optimizer"].applied


def test_a_tune_of_a_script_that_is_too_short_says_so_at_once(vivace_here: Callable):
    done = vivace_here("tune", "--", sys.executable, str(PLAIN), "--steps", "8")
    assert done.code == 3  # not enough was seen
    said = " ".join(done.err.split())
    needed = re.search(r"too short: the script ended by itself after 8 steps, and vivace needs about (\d+)", said)
    assert needed is not None, said  # how many, the warm-up decides
    assert f"--steps {needed[1]} in place of --steps 8" in said
    assert len(list((done.folder / "trials").iterdir())) == 1
