"""A tune of ranks beside one process, in a made-up world where the speed of both is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from practices.evidence import spread
from tune.harm.made_steps import noisy, run, step

from vivace.errors import ExitCode, UserError
from vivace.records.equality import EqualityVerdict
from vivace.records.proof import Interval
from vivace.records.trial import Outcome, Trial
from vivace.tune.proving import _run_with
from vivace.tune.ranks.scaling import prove_first, scaled
from vivace.tune.trials import TrialSettings

ALONE_MS, RANKS_MS = 100.0, 60.0
PRACTICES = Interval(median=1.5, low=1.4, high=1.6)


@dataclass
class World:
    """``off``: by how much of its length the ranks' first gradient is off."""

    off: float = 1e-7
    repeats_itself: bool = True
    alone_ends: Outcome = Outcome.OK
    left_s: float = 1e4
    command: tuple[str, ...] = ("python", "train.py")
    folder: Path = Path("runs/train-001")
    settings: TrialSettings = field(default_factory=lambda: TrialSettings(ranks=2, mode="ddp"))
    trials: list[Trial] = field(default_factory=list)

    def has_time_for(self, seconds: float) -> bool:
        return self.left_s >= seconds

    def say(self, line: str) -> None:
        pass

    def run(self, label: str, seed: int = 0, norms: bool = False, alone: bool = False) -> Trial:
        wobble = 1 + 0.002 * (-1) ** len(self.trials)
        step_ms = (ALONE_MS if alone else RANKS_MS) * wobble
        gradient = noisy(0.0 if alone else self.off)
        if alone and not self.repeats_itself:
            gradient = noisy(0.5, seed=len(self.trials))
        record = run(step(gradient)).model_copy(update={**speed(step_ms), "trajectory": (2.0, 1.9, 1.8)})
        outcome = self.alone_ends if alone else Outcome.OK
        trial = Trial(
            name=f"{len(self.trials):03d}-{label}", command=self.command, practices=(), ranks=None if alone else 2,
            outcome=outcome, seconds=10.0, seed_offset=seed, measurement=record if outcome is Outcome.OK else None,
        )  # fmt: skip
        self.trials.append(trial)
        self.left_s -= 10.0
        return trial


def speed(step_ms: float) -> dict[str, Any]:
    series = {"step": tuple(step_ms * (1 + 0.001 * (-1) ** n) for n in range(20))}
    return {"step_ms": spread(step_ms), "samples_per_s": 1e4 / step_ms, "series_ms": series}


def tuned(world: World, practices: Interval | None = None, rounds: int = 3) -> Any:
    bench: Any = world
    baseline = world.run("baseline", norms=True)
    return scaled(bench, baseline, prove_first(bench, baseline), practices, rounds)


def test_the_ranks_are_timed_in_pairs_beside_one_process():
    world = World()
    found = tuned(world, PRACTICES)
    assert found.equality.verdict is EqualityVerdict.EQUAL
    assert found.pairs == 3
    assert found.over_one.low < ALONE_MS / RANKS_MS < found.over_one.high
    assert found.over_one.median == pytest.approx(ALONE_MS / RANKS_MS, rel=0.01)
    assert found.efficiency == pytest.approx(ALONE_MS / RANKS_MS / 2, rel=0.01)
    assert found.with_practices.median == pytest.approx(1.5 * found.over_one.median)
    half = math.hypot(*(math.log(each.high / each.low) / 2 for each in (found.over_one, PRACTICES)))
    assert math.log(found.with_practices.high / found.with_practices.median) == pytest.approx(half)
    order = [trial.name.partition("-")[2] for trial in world.trials[2:]]
    assert order[:4] == ["scaling0-one", "scaling0-ranks", "scaling1-ranks", "scaling1-one"]


def test_another_training_ends_the_tune_before_it_searches():
    with pytest.raises(UserError, match="another training than in one process") as error:
        tuned(World(off=0.1))
    assert error.value.exit_code is ExitCode.NEGATIVE


def test_a_job_that_does_not_repeat_itself_accuses_nobody():
    found = tuned(World(off=0.1, repeats_itself=False))
    assert found.equality.verdict is EqualityVerdict.EQUAL  # within what a rerun differs by


def test_one_process_that_does_not_fit_is_said_and_the_ranks_are_tuned_alone():
    found = tuned(World(alone_ends=Outcome.OUT_OF_MEMORY))
    assert found.equality.verdict is EqualityVerdict.NOT_COMPARED
    assert found.over_one is None
    assert found.split is not None


def test_the_time_ends_the_pairs():
    assert tuned(World(left_s=65.0), rounds=5).pairs == 2


def test_the_command_to_train_with_names_ranks_and_mode():
    bench: Any = World()
    assert _run_with(bench, ("bf16",)) == "vivace run --ranks 2 --with ddp,bf16 -- python train.py"
