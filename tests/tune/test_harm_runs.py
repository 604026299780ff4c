"""Runs that are made to judge harm: which ones a set needs, whom they clear, and what is left unseen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tune.harm.made_steps import GRADIENT, run, step

from vivace.protocol.answers import PracticeAnswer, PracticeState
from vivace.records.measurement import Measurement
from vivace.records.proof import Harm, HarmOutcome, HarmTest, HarmTestKind, HarmVerdict
from vivace.records.trial import Trial
from vivace.tune.harm import claims_of, judge
from vivace.tune.harm_runs import LATE_STEPS, harm_looks, seen_in_the_first_steps, suspects_of

LOSSES = tuple(2.0 * 0.9**n for n in range(30))
FOUND: Any = SimpleNamespace(
    pair_s=10.0, warm_s=7.5, again=SimpleNamespace(seconds=5.0), best=SimpleNamespace(seconds=5.0)
)


@dataclass
class FakeBench:
    """``faulty``: practices that make every gradient and loss 1 % larger."""

    faulty: tuple[str, ...] = ()
    left_s: float = 1000.0
    used_s: float = 60.0
    folder: Path = Path("runs/x")
    asked: list[tuple[str, tuple[str, ...], dict[str, Any]]] = field(default_factory=list)

    def has_time_for(self, seconds: float) -> bool:
        return self.left_s >= seconds

    def run(self, label: str, words: tuple[str, ...] = (), **options: Any) -> Trial:
        self.asked.append((label, words, options))
        steps = max(30, options.get("steps") or 0)
        answers = dict.fromkeys(words, PracticeAnswer(PracticeState.APPLIED, "so"))
        return Trial(
            name=label, command=("python",), practices=words, outcome="ok", seconds=5.0,
            measurement=self.measured(words, steps).model_copy(update={"practices": answers}),
        )  # fmt: skip

    def measured(self, words: tuple[str, ...], steps: int = 30) -> Measurement:
        factor = 1.01 if any(word in self.faulty for word in words) else 1.0
        losses = tuple(factor * (0.2 + 2.0 * 0.9**n) for n in range(steps))
        return run(step(factor * GRADIENT), trajectory=losses)


def looks(bench: FakeBench, *words: str, harm_steps: int | None = None):
    pair = (bench.measured(()), bench.measured(words))
    return pair, *harm_looks(bench, FOUND, words, pair, harm_steps)  # type: ignore[arg-type]


def test_what_rounds_coarsely_is_taken_away_to_see_the_others():
    bench = FakeBench(faulty=("channels_last",))
    pair, found, unseen = looks(bench, "bf16", "channels_last", "fused_optimizer")
    ((_label, words, options),) = bench.asked
    assert words == ("channels_last", "fused_optimizer")
    assert (options["same_draws"], options["seed"]) == (True, 1)
    assert unseen == []
    claims = claims_of(("bf16", "channels_last", "fused_optimizer"))
    alone = judge([pair], None, claims)
    harm = judge([pair], None, claims, looks=found)
    assert [test.outcome for test in alone.tests if test.kind is HarmTestKind.FIRST_STEP] == [HarmOutcome.PASSED]
    assert harm.verdict is HarmVerdict.OUTSIDE
    assert "first step of channels_last, fused_optimizer: gradients" in harm.says
    assert suspects_of(harm, ("bf16", "channels_last", "fused_optimizer")) == ["channels_last", "fused_optimizer"]
    assert seen_in_the_first_steps(harm)


def test_those_that_a_look_has_cleared_are_not_suspects():
    tests = (
        HarmTest(kind="first step", outcome="failed", says="so"),
        HarmTest(kind="first step", outcome="passed", of=("channels_last",)),
    )
    harm = Harm(verdict=HarmVerdict.OUTSIDE, tests=tests)
    assert suspects_of(harm, ("bf16", "channels_last")) == ["bf16"]
    assert suspects_of(Harm(verdict=HarmVerdict.OUTSIDE), ("bf16", "tf32")) == ["bf16", "tf32"]


@pytest.mark.parametrize("words", [("bf16",), ("channels_last", "fused_optimizer"), ("pin_memory",)])
def test_a_set_that_shows_by_itself_needs_no_run(words: tuple[str, ...]):
    bench = FakeBench()
    assert looks(bench, *words)[1:] == ([], [])
    assert bench.asked == []


def test_compiled_code_is_made_to_draw_the_scripts_dropout_masks():
    bench = FakeBench()
    _, (look,), _ = looks(bench, "compile")
    assert bench.asked[0][2]["same_draws"]
    assert look.claims.other_draws == ()


def test_augmentation_in_workers_cannot_and_is_left_out():
    bench = FakeBench()
    _, (look,), _ = looks(bench, "workers=4", "channels_last")
    assert look.words == ("channels_last",)


def test_a_practice_that_shows_late_is_looked_at_longer():
    bench = FakeBench()
    pair, (look,), _ = looks(bench, "pure_bf16")
    assert [(label, options["steps"]) for label, _, options in bench.asked] == [
        ("long-baseline", LATE_STEPS),
        ("long-tuned", LATE_STEPS),
    ]
    assert look.long
    harm = judge([pair], None, claims_of(("pure_bf16",)), looks=[look])
    assert harm.seen_steps == LATE_STEPS
    assert harm.cannot_see.endswith(f"effects that show after {LATE_STEPS} steps")
    assert harm.tests[-1].kind is HarmTestKind.LONG_LOOK


def test_harm_steps_asks_for_a_longer_look_of_anything():
    bench = FakeBench()
    looks(bench, "fused_optimizer", harm_steps=500)
    assert [options["steps"] for _, _, options in bench.asked] == [500, 500]
    enough = FakeBench()
    looks(enough, "fused_optimizer", harm_steps=20)  # the rounds have as many
    assert enough.asked == []


def test_what_there_was_no_time_for_is_said():
    bench = FakeBench(left_s=1.0)
    pair, found, unseen = looks(bench, "pure_bf16", "channels_last")
    assert found == []
    assert bench.asked == []
    assert "beside pure_bf16: not enough time" in unseen[0]
    assert "pure_bf16 may show only after hundreds of steps" in unseen[1]
    assert "--resume runs/x --budget" in unseen[1]
    harm = judge([pair], None, claims_of(("pure_bf16", "channels_last")), unseen=unseen)
    assert all(sentence in harm.cannot_see for sentence in unseen)
