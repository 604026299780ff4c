"""The embedded example with a practice that multiplies its loss by 1.03: three seeds of a band would not see it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from conftest import environment
from forked.here import forked_scripts

from vivace.records.measurement import Measurement
from vivace.records.proof import HarmVerdict
from vivace.tune.harm import claims_of, judge
from vivace.tune.trials import TrialSettings, run_trial


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("demo")

    def run(words: tuple[str, ...] = (), factor: str = "1", seed: int = 1) -> Measurement:
        command = (sys.executable, str(Path(__file__).parent / "planted.py"))
        settings = TrialSettings(steps=6, warmup_steps=6, seed_offset=seed, grad_norms=True)
        name = "-".join((*words, factor, str(seed)))
        with patch.dict(os.environ, environment(PLANTED=factor), clear=True), forked_scripts():
            trial = run_trial(command, words, folder / name, settings, lambda *_: None, lambda _: None)
        assert trial.measurement is not None, trial.message
        assert all(answer.applied for answer in trial.measurement.practices.values())
        return trial.measurement

    return run


@pytest.mark.parametrize("words", [("channels_last",), ("bf16",)])
def test_a_loss_times_1_03_is_caught_and_the_practice_alone_is_not(demo, words: tuple[str, ...]):
    before, other_seed = demo(), demo(seed=2)
    claims = claims_of(words, before)
    healthy = judge([(before, demo(words))], None, claims, [other_seed])
    assert healthy.verdict is HarmVerdict.INSIDE
    assert healthy.seen_steps == len(before.trajectory)
    harmed = judge([(before, demo(words, "1.03"))], None, claims, [other_seed])
    assert harmed.verdict is HarmVerdict.OUTSIDE
    assert harmed.tests[-1].kind == "seed band"
    assert harmed.tests[-1].outcome == "passed"  # what was all there was before
