"""The search for the fastest set, in a made-up world where the speed of every set is known.

A GPU that is fast enough to show all of this cannot exist here; whole tunes on real processes are in test_tuning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from practices.evidence import measurement
from rich.text import Text

from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.finding import Finding, Risk
from vivace.records.measurement import Measurement
from vivace.records.proof import Conclusion, Rejection
from vivace.records.trial import Trial
from vivace.tune import proving, searching
from vivace.tune.attempts import Search
from vivace.tune.diagnosis import worth_of
from vivace.tune.references import measured
from vivace.tune.switchback import Sorted
from vivace.tune.trials import TrialSettings

BASE_MS = 100.0
TRIAL_S = 10.0
ALLOWED = (Risk.EXACT, Risk.ROUNDING)


@dataclass
class World:
    """``faster``: by how much each word shortens the step; ``batch_ms``: the loader gives no more than one a time."""

    faster: dict[str, float]
    batch_ms: float = 0.0
    crashes: tuple[str, ...] = ()
    crashes_alone: tuple[str, ...] = ()
    crashes_together: bool = False  # the trial of all at once
    ends: str = ""  # the label of a trial that runs out of memory
    refuses_alone: tuple[str, ...] = ()
    harms: tuple[str, ...] = ()  # these move the losses far away; "a+b": both together do
    message: str = ""
    compile_s: float = 0.0  # of each compiled set, the first time
    machine: Sequence[float] = ()  # its speed at each trial, in order; 1 after the last
    sorted: Sorted = field(default_factory=Sorted)  # what was seen where practices were switched inside one process
    budget_s: float = 1e4
    prefix: tuple[str, ...] = ()
    folder: Path = Path("runs/train-001")
    settings: TrialSettings = field(default_factory=TrialSettings)
    command: tuple[str, ...] = ("python", "train.py")
    trials: list[Trial] = field(default_factory=list)
    seeds: dict[str, int] = field(default_factory=dict)  # by the trial's label
    used_s: float = 0.0
    told: list[str] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return self.budget_s - self.used_s

    def has_time_for(self, seconds: float) -> bool:
        return self.left_s >= seconds

    def say(self, text: str) -> None:
        self.told.append(text)

    def step_ms(self, words: Sequence[str]) -> tuple[float, float]:
        """The whole step, and the part of it that waits for the loader."""
        compute = BASE_MS
        for word in words:
            compute /= self.faster.get(word, 1.0)
        batch_ms = self.batch_ms / (3 if "batch_memory" in words or "prefetch=8" in words else 1)
        return max(compute, batch_ms), max(0.0, batch_ms - compute)

    def run(self, label: str, words: Sequence[str] = (), **options: Any) -> Trial:
        crashed = any(word in self.crashes for word in words) or tuple(words) == self.crashes_alone != ()
        crashed = crashed or label == self.ends or (self.crashes_together and label == "try-together")
        self.seeds[label] = options.get("seed", 0)
        trial = Trial(
            name=f"{len(self.trials):03d}-{label}",
            command=self.command,
            practices=tuple(words),
            seed_offset=options.get("seed", 0),
            seconds=self.seconds(words),
            outcome="crash" if crashed else "ok",
            message=self.message,
            measurement=None if crashed else self.measured(words, **options),
        )
        self.trials.append(trial)
        self.used_s += trial.seconds
        return trial

    def seconds(self, words: Sequence[str]) -> float:
        cold = "compile" in words and tuple(words) not in {trial.practices for trial in self.trials}
        return TRIAL_S + (self.compile_s if cold else 0.0)

    def measured(self, words: Sequence[str], evidence: bool = False, seed: int = 0, **_: Any) -> Measurement:
        step, waits = self.step_ms(words)
        slower = 1 / (self.machine[len(self.trials)] if len(self.trials) < len(self.machine) else 1.0)
        step, waits = step * slower, waits * slower
        told = dict.fromkeys(words, "applied: so") | {w: "needs workers" for w in self.refuses_alone if len(words) == 1}
        record = measurement(step_ms=step, phases={"loader": waits}, practices={w: told[w] for w in words})
        steps = {"step": (step,) * 20, "loader": (waits,) * 20}
        loss = 1.0 + 0.01 * seed + sum({*harm.split("+")} <= {*words} for harm in self.harms)
        only_without_evidence = {} if evidence else {"profile": None, "mfu": None}
        return record.model_copy(
            update={"samples_per_s": 1e3 / step, "series_ms": steps, "mfu": 10 / step, "trajectory": (loss,) * 20}
            | only_without_evidence
        )

    def findings(self, m: Measurement) -> tuple[Finding, ...]:
        """Everything that shortens the step and was not applied; the loader's only once there are waits."""
        waits = m.phases_ms["loader"].mean
        words = [w for w in self.faster if w not in m.practices]
        if waits > 5 and "prefetch=8" not in m.practices:
            words.append("prefetch=8")
        return tuple(finding(word, waits if word == "prefetch=8" else 20.0, m) for word in words)


def finding(word: str, exposed_ms: float, m: Measurement) -> Finding:
    name = split_word(word)[0]
    assert m.step_ms is not None
    return Finding(
        practice=name, exposed_ms=exposed_ms, worth=worth_of(exposed_ms, m.step_ms.mean), setting=word, applies=True,
        risk=Risk(get_practice(name).risk), title=name, says=name, by_hand="", evidence={},
        also_try=("compile", "compile=reduce-overhead") if name == "compile" else (),
    )  # fmt: skip


@pytest.fixture
def search_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], Search]:
    def search(world: World) -> Search:
        monkeypatch.setattr(searching, "diagnose", world.findings)
        monkeypatch.setattr(searching, "sort_out", lambda *_: world.sorted)
        found = searching.baseline_of(world, ALLOWED, reserve_trials=4)  # type: ignore[arg-type]
        searching.search(found)
        return found

    return search


def names(world: World) -> list[str]:
    return [trial.name[4:] for trial in world.trials]


FAST, SLOW = 11_070 / 890, 1.0  # what the same job ran at, on a machine that five people used


def test_on_a_busy_machine_nothing_is_called_slower_that_the_runs_cannot_tell(search_in):
    """The first runs have the machine for themselves; then others come, and go, and come."""
    world = World(
        {"channels_last": 1.0, "fused_optimizer": 1.0},
        machine=(FAST, FAST, SLOW, SLOW, FAST, SLOW, SLOW, FAST, SLOW, FAST, SLOW),
    )
    found = search_in(world)
    proof = proving.prove(world, found, rounds=2)  # type: ignore[arg-type]
    reasons = {rejected.practice: rejected.reason for rejected in proof.rejected}
    assert set(reasons) == {"channels_last", "fused_optimizer"}
    assert set(reasons.values()) <= {Rejection.UNJUDGED, Rejection.NOT_PROVED}
    assert proof.conclusion is Conclusion.UNJUDGED
    assert proof.unchanged is not None
    assert proof.unchanged.high / proof.unchanged.low == pytest.approx(FAST)
    told = [line for line in world.told if "channels_last" in line]
    assert "could not be judged: " in told[-1]  # whatever was said of it before more was known


def test_a_machine_that_becomes_slow_for_good_is_seen_by_the_runs_between_the_trials(search_in):
    """After the baselines everything takes twice as long: 0.5× is the machine's doing, and the practice brings 0 %."""
    world = World({"channels_last": 1.0}, machine=(1.0, 1.0) + (0.5,) * 20)
    found = search_in(world)
    assert any("could not be judged: 0.71×" in line for line in world.told)
    assert "baseline-repeat1" in names(world)
    rejected = found.rejected["channels_last"]  # runs after the change tell
    assert rejected.reason is Rejection.NO_GAIN
    assert rejected.ratio is not None
    assert rejected.ratio > 0.9


def test_what_could_not_be_judged_is_run_again_and_kept_if_that_tells(search_in):
    world = World({"channels_last": 1.3}, machine=(1.0, 1.3, 0.8, 1.0))
    found = search_in(world)
    assert "again1-channels_last" in names(world)
    assert found.words == ("channels_last",)
    assert found.unjudged == []
    assert "channels_last" not in found.rejected


KEPT_THEN_NOISY = (1.0, 1.3, 1.3, 0.8)  # the second word's trial meets a slow machine


def test_the_best_set_is_proved_before_anything_is_judged_again(search_in):
    world = World({"bf16": 3.0, "channels_last": 1.3}, crashes_together=True, machine=(*KEPT_THEN_NOISY, 0.6, 1.3))
    found = search_in(world)
    assert found.words == ("bf16",)
    assert found.unjudged == ["channels_last"]
    proof = proving.prove(world, found, rounds=3)  # type: ignore[arg-type]
    ran = names(world)
    again = [number for number, name in enumerate(ran) if name.startswith("again")]
    assert again
    assert again[0] > ran.index("round2-tuned")
    assert "bf16" in {gain.practice for gain in proof.practices}


def test_a_machine_that_becomes_slow_ends_the_doubt_and_not_the_proof(search_in):
    """After the search each run takes twice as long as was planned for: the time holds both rounds, and little else."""

    class Slowing(World):
        def seconds(self, words: Sequence[str]) -> float:
            return super().seconds(words) * (2 if len(self.trials) >= 9 else 1)

    noisy = (*KEPT_THEN_NOISY, 0.6, 1.3)
    world = Slowing({"bf16": 3.0, "channels_last": 1.3}, crashes_together=True, machine=noisy, budget_s=19 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=2)  # type: ignore[arg-type]
    assert names(world)[9:13] == ["round0-baseline", "round0-tuned", "round1-tuned", "round1-baseline"]
    assert not any("the time budget ended the proof" in note for note in proof.notes)


def test_what_is_worth_far_less_than_the_noise_is_not_run_again(search_in):
    """A finding of 2 % beside runs that differ by a third: six runs of each could not tell."""

    class Cheap(World):
        def findings(self, m: Measurement) -> tuple[Finding, ...]:
            return tuple(finding(word, 2.0, m) for word in self.faster if word not in m.practices)

    world = Cheap({"channels_last": 1.02}, machine=(1.0, 1.3, 0.8, 1.0))
    found = search_in(world)
    assert found.unjudged == ["channels_last"]
    assert not [name for name in names(world) if name.startswith("again")]


def test_what_brings_nothing_is_said_to_once_more_runs_tell(search_in):
    world = World({"channels_last": 1.0}, machine=(1.0, 1.3, 0.8, 1.0))
    found = search_in(world)
    assert "again1-channels_last" in names(world)
    assert found.rejected["channels_last"].reason is Rejection.NO_GAIN


def test_without_time_for_more_runs_what_would_suffice_is_said(search_in):
    world = World({"channels_last": 1.0}, machine=(1.0, 1.3, 0.8, 1.0), budget_s=90.0)
    found = search_in(world)
    assert not [name for name in names(world) if name.startswith("again")]
    why = found.rejected["channels_last"].why
    assert why.startswith("could not be judged: ")
    assert re.search(r"; \d+ runs of each would tell \(about \d+ min more\), or a quieter machine$", why)


def test_what_comes_after_the_change_is_compared_with_runs_after_it(search_in):
    """The second practice halves the step on the slowed machine: next to the runs beside it, that is 2×."""
    world = World(
        {"metric_checks": 1.0, "fused_optimizer": 2.0, "channels_last": 0.1}, machine=(1.0,) * 3 + (0.4,) * 30
    )
    found = search_in(world)
    assert found.words == ("fused_optimizer",)


def test_on_a_steady_machine_a_slower_practice_is_called_slower(search_in):
    world = World({"channels_last": 0.7})
    found = search_in(world)
    assert (found.rejected["channels_last"].reason, found.rejected["channels_last"].why) == (
        Rejection.NO_GAIN,
        "0.70× (slower)",
    )
    assert proving.prove(world, found, rounds=1).conclusion is Conclusion.NO_GAIN  # type: ignore[arg-type]


def test_repeats_take_a_third_of_the_search_at_most(search_in):
    words = ("channels_last", "metric_checks", "fused_optimizer", "cudnn_benchmark", "no_syncs", "pin_memory")
    world = World(dict.fromkeys(words, 0.9))
    found = search_in(world)
    repeats = [trial for trial in world.trials if "repeat" in trial.name]
    assert found.repeats_s == TRIAL_S * len(repeats)
    assert 1 <= len(repeats) <= len(world.trials) / 3 + 1
    assert names(world)[-1].startswith("baseline-repeat")  # the last trial has one after it, too


def test_without_time_for_the_proof_nothing_is_repeated(search_in):
    world = World({"channels_last": 0.9}, budget_s=6 * TRIAL_S)
    search_in(world)
    assert not any("repeat" in name for name in names(world))


class Sleeping(World):
    """A loader on two cores whose workers sleep: each makes a batch in ``batch_ms``, whatever the others do."""

    def step_ms(self, words: Sequence[str]) -> tuple[float, float]:
        workers = next((int(split_word(w)[1] or 0) for w in words if w.startswith("workers")), 0)
        compute = BASE_MS
        step = max(compute, self.batch_ms / workers) if workers else compute + self.batch_ms
        return step, step - compute

    def findings(self, m: Measurement) -> tuple[Finding, ...]:
        waits = m.phases_ms["loader"].mean
        kept = next((int(split_word(w)[1] or 0) for w in m.practices if w.startswith("workers")), 0)
        return (finding(f"workers={2 * kept or 2}", waits, m),) if waits > 5 else ()


def test_after_a_gain_the_largest_remaining_cause_is_looked_at_again(search_in):
    """One batch takes a worker 1.6 s: two workers are 2.1× as fast as none, and most of a step still waits."""
    world = Sleeping({}, batch_ms=1600.0)
    found = search_in(world)
    assert found.words == ("workers=16",)
    assert world.step_ms(found.words) == (BASE_MS, 0.0)


def test_what_was_found_is_tried_at_once_and_kept(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "metric_checks": 1.1})
    found = search_in(world)
    assert set(found.words) == {"channels_last", "bf16", "metric_checks"}
    assert names(world) == ["baseline", "baseline-again", "try-together"]
    assert found.unproven == set(found.words)


def test_what_is_doubtful_is_tried_last_and_kept_where_it_helps(search_in):
    """On a GPU, what did not pay inside one process gets its trial after all others."""
    world = World(
        {"metric_checks": 1.3, "channels_last": 1.2, "bf16": 2.0, "fused_optimizer": 1.0},
        sorted=Sorted(pay=("bf16",), try_last=("metric_checks", "fused_optimizer")),
    )
    found = search_in(world)
    ran = [name for name in names(world) if "repeat" not in name]
    assert ran[2:] == ["try-together", "try-metric_checks", "try-fused_optimizer"]
    assert not {"metric_checks", "fused_optimizer"} & {*world.trials[2].practices}
    assert set(found.words) == {"channels_last", "bf16", "metric_checks"}
    assert found.rejected["fused_optimizer"].reason is Rejection.NO_GAIN


def test_where_that_crashes_they_are_tried_one_by_one(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "metric_checks": 1.1}, crashes=("metric_checks",))
    found = search_in(world)
    assert set(found.words) == {"channels_last", "bf16"}
    assert found.rejected["metric_checks"].outcome == "crash"
    assert not found.unproven


def test_what_ended_its_trial_is_not_tried_again(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "metric_checks": 1.1}, crashes=("metric_checks",))
    search_in(world)
    crashed = [trial for trial in world.trials if "metric_checks" in trial.practices]
    assert len(crashed) == 2  # with all the others, and alone


def test_what_a_script_says_is_no_markup(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0}, crashes=("bf16",), message="no files in [/data/train]")
    search_in(world)
    told = [line for line in world.told if "data/train" in line]
    assert told
    for line in told:
        assert "[/data/train]" in Text.from_markup(line).plain


def test_where_one_slows_all_down_they_are_tried_one_by_one(search_in):
    world = World({"channels_last": 1.2, "bf16": 0.1})
    found = search_in(world)
    assert found.words == ("channels_last",)
    assert found.rejected["bf16"].ratio == pytest.approx(0.1)


def test_of_two_precisions_one_goes_into_the_bundle(search_in):
    world = World({"bf16": 3.0, "tf32": 1.0, "channels_last": 1.2})
    found = search_in(world)
    assert set(found.words) == {"bf16", "channels_last"}
    assert names(world)[:3] == ["baseline", "baseline-again", "try-together"]
    assert names(world).count("try-tf32") == 1  # found again in what is left, and tried then


def test_a_loader_that_only_a_compiled_step_waits_for_is_found(search_in):
    """60 ms a batch: not felt at 62 ms per step, and the limit once compiled code needs 40."""
    world = World({"bf16": 1.6, "compile": 1.6}, batch_ms=60.0)
    found = search_in(world)
    assert set(found.words) == {"bf16", "compile", "prefetch=8"}
    assert world.step_ms(found.words)[0] == pytest.approx(BASE_MS / 1.6 / 1.6)


def test_cuda_graphs_are_tried_where_plain_compile_is_slower(search_in):
    world = World({"bf16": 1.6, "compile": 0.9, "compile=reduce-overhead": 1.5})
    found = search_in(world)
    assert set(found.words) == {"bf16", "compile=reduce-overhead"}


def test_cuda_graphs_go_first_where_the_gpu_waits_for_launches_and_plain_compile_is_left_out_when_they_pay(search_in):
    world = World({"bf16": 1.6, "compile=reduce-overhead": 1.5})
    found = search_in(world)
    assert set(found.words) == {"bf16", "compile=reduce-overhead"}
    assert "try-compile" not in names(world)


def test_what_does_not_pay_because_of_the_loader_is_tried_with_a_faster_loader(search_in):
    """62.5 ms per step, and a loader of one batch in 62: compiled code alone cannot show what it is worth."""
    world = World({"bf16": 1.6, "compile": 1.6}, batch_ms=62.0)
    found = search_in(world)
    assert set(found.words) == {"bf16", "compile", "prefetch=8"}
    assert world.step_ms(found.words)[0] == pytest.approx(BASE_MS / 1.6 / 1.6)


def test_the_proof_leaves_out_what_brings_nothing_and_keeps_the_figures_of_the_rest(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "metric_checks": 1.0})
    proof = proving.prove(world, search_in(world), rounds=2)  # type: ignore[arg-type]
    assert {gain.practice for gain in proof.practices} == {"channels_last", "bf16"}
    by_name = {gain.practice: gain for gain in proof.practices}
    assert by_name["bf16"].last is not None
    assert by_name["bf16"].alone is not None
    assert by_name["bf16"].last.median == pytest.approx(2.0)
    assert by_name["channels_last"].alone.median == pytest.approx(1.3)  # type: ignore[union-attr]
    assert proof.speedup.median == pytest.approx(2.6)


def test_the_lines_to_write_are_those_of_the_argument_that_was_kept(search_in):
    world = World({"bf16": 1.6, "compile": 0.9, "compile=reduce-overhead": 1.5})
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    lines = {gain.practice: gain.by_hand for gain in proof.practices}
    assert lines["compile=reduce-overhead"].startswith('model.compile(mode="reduce-overhead")')


def test_what_slows_a_compiled_set_is_left_out_although_compiling_took_long(search_in):
    world = World({"bf16": 2.0, "metric_checks": 0.9, "compile": 1.5}, compile_s=30.0, budget_s=20 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=2)  # type: ignore[arg-type]
    assert {gain.practice for gain in proof.practices} == {"bf16", "compile"}
    assert proof.speedup.median == pytest.approx(3.0)


def test_what_nobody_looked_at_alone_is_said(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0}, budget_s=7 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=2)  # type: ignore[arg-type]
    assert world.used_s <= world.budget_s
    assert any("not enough time to test these alone" in note and "bf16" in note for note in proof.notes)


def test_what_there_was_no_time_for_is_said_with_the_budget_that_goes_on(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "compile": 1.5}, budget_s=5 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=2)  # type: ignore[arg-type]
    assert {gain.practice for gain in proof.practices} == {"channels_last", "bf16"}
    (note,) = [note for note in proof.notes if note.startswith("not tried, not enough time: compile")]
    # 50 s were used; two trials, two pairs, and twice two minutes to compile.
    assert note.endswith("continue with: vivace tune --resume runs/train-001 --budget 6")


def test_what_may_bring_much_is_tried_with_what_two_pairs_leave(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "compile": 1.5}, budget_s=7 * TRIAL_S)
    found = search_in(world)
    assert {"bf16", "channels_last", "compile"} == set(found.words)


def test_a_budget_without_time_for_a_trial_is_told_with_one_that_has(search_in):
    world = World({"bf16": 2.0}, budget_s=2.5 * TRIAL_S)
    found = search_in(world)
    assert found.words == ()
    assert any("not enough time for a trial and its proof" in note and "--budget" in note for note in found.notes)


def test_a_machine_on_which_the_unchanged_job_is_not_steady_is_told(search_in):
    world = World({"bf16": 2.0})
    found = search_in(world)
    steady = proving.prove(world, found, rounds=1)  # type: ignore[arg-type]
    found.baseline = found.baseline.model_copy(
        update={"measurement": measured(found.baseline).model_copy(update={"samples_per_s": 3.0})}
    )
    busy = proving.prove(world, found, rounds=1)  # type: ignore[arg-type]
    assert not any("something else takes" in note for note in steady.notes)
    assert any("between 3 and 10 samples/s" in note for note in busy.notes)


def test_every_pair_has_a_seed_that_no_other_run_has(search_in):
    world = World({"bf16": 2.0})
    proving.prove(world, search_in(world), rounds=2)  # type: ignore[arg-type]
    rounds = {label: seed for label, seed in world.seeds.items() if label.startswith("round")}
    assert set(rounds.values()) == {1, 2}
    assert {seed for label, seed in world.seeds.items() if label not in rounds} == {0}


def test_what_moves_the_losses_is_left_out_and_the_rest_proved(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "workers=16": 1.5}, harms=("bf16",))
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    assert {gain.practice for gain in proof.practices} == {"channels_last", "workers=16"}
    assert proof.speedup.median == pytest.approx(1.3 * 1.5)
    assert proof.losses_in_band
    assert any("with all of them (3.90×; " in note and "left out: bf16" in note for note in proof.notes)


def test_without_time_to_look_at_each_all_that_may_round_differently_is_left_out(search_in):
    """Two baselines, one trial of all, one pair, and the pair that is kept in reserve."""
    world = World({"channels_last": 1.3, "bf16": 2.0, "workers=16": 1.5}, harms=("bf16",), budget_s=7 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    assert world.used_s <= world.budget_s
    assert {gain.practice for gain in proof.practices} == {"workers=16"}
    assert proof.speedup.median == pytest.approx(1.5)
    assert proof.losses_in_band
    why = {rejected.practice: rejected.why for rejected in proof.rejected}
    assert "was not tested alone" in why["channels_last"]


def test_what_would_have_to_be_compiled_to_be_looked_at_alone_does_not_take_the_time_of_the_proof(search_in):
    faster = {"channels_last": 1.3, "bf16": 2.0, "workers=16": 1.5, "compile": 1.2}
    world = World(faster, harms=("bf16",), compile_s=9 * TRIAL_S, budget_s=60 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    kept = {gain.practice for gain in proof.practices}
    assert {"channels_last", "workers=16"} <= kept
    assert "bf16" not in kept
    assert proof.losses_in_band


def test_harm_that_only_a_combination_does_leaves_what_is_exact(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "workers=16": 1.5}, harms=("bf16+channels_last",))
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    assert {gain.practice for gain in proof.practices} == {"workers=16"}
    why = {rejected.practice: rejected.why for rejected in proof.rejected}
    assert "none does it alone" in why["bf16"]


def test_what_is_left_and_does_not_run_is_said(search_in):
    world = World({"bf16": 2.0, "workers=16": 1.5}, harms=("bf16",))
    found = search_in(world)
    world.crashes_alone = ("workers=16",)
    proof = proving.prove(world, found, rounds=1)  # type: ignore[arg-type]
    assert proof.practices == ()
    assert {rejected.practice for rejected in proof.rejected} == {"bf16", "workers=16"}


def test_where_the_rest_cannot_be_proved_nothing_is_recommended(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "workers=16": 1.5}, harms=("bf16",), budget_s=6 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    assert proof.practices == ()
    assert proof.losses_in_band is False
    # 50 s were used: two suspects to look at and a pair need 40 more.
    assert any(note.endswith("continue with: vivace tune --resume runs/train-001 --budget 2") for note in proof.notes)


def test_losses_of_the_searchs_own_run_of_the_set_are_compared_too(search_in):
    world = World({"bf16": 2.0})
    proof = proving.prove(world, search_in(world), rounds=2)  # type: ignore[arg-type]
    assert proof.harm is not None
    assert (proof.harm.rounds, proof.harm.seeds) == (2, 3)


def test_what_one_run_says_is_faster_without_is_said(search_in):
    """Two practices tried together, one of which slows; after the pair there is time for a run without each."""
    world = World({"channels_last": 2.0, "metric_checks": 0.9}, budget_s=7 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    assert {gain.practice for gain in proof.practices} == {"channels_last", "metric_checks"}
    assert any("even faster without metric_checks" in note for note in proof.notes)


@pytest.mark.parametrize("label", ["round0-tuned", "round1-tuned"])
def test_a_tuned_job_that_ends_in_its_proof_is_not_recommended(search_in, label: str):
    world = World({"channels_last": 1.3, "bf16": 2.0}, ends=label, message="CUDA out of memory")
    proof = proving.prove(world, search_in(world), rounds=3)  # type: ignore[arg-type]
    assert proof.practices == ()
    assert any("the tuned job ended" in note and "CUDA out of memory" in note for note in proof.notes)
    assert proof.ended is not None
    assert proof.ended.endswith(f"{label}: crash")
    assert {rejected.practice for rejected in proof.rejected} == {"channels_last", "bf16"}


def test_an_unchanged_job_that_ends_in_the_proof_leaves_what_was_proved_before(search_in):
    world = World({"bf16": 2.0}, ends="round1-baseline")
    proof = proving.prove(world, search_in(world), rounds=3)  # type: ignore[arg-type]
    assert {gain.practice for gain in proof.practices} == {"bf16"}
    assert any("the unchanged job itself ended" in note for note in proof.notes)
    first = World({"bf16": 2.0}, ends="round0-baseline")
    assert proving.prove(first, search_in(first), rounds=3).practices == ()  # type: ignore[arg-type]


def test_practices_of_which_each_stands_in_for_the_other_are_not_left_out_together(search_in):
    """Either of the two halves the step; beside the other one it brings nothing."""

    class Either(World):
        def step_ms(self, words: Sequence[str]) -> tuple[float, float]:
            halved = {"channels_last", "metric_checks"} & set(words)
            return super().step_ms(words)[0] / (2 if halved else 1), 0.0

    world = Either({"channels_last": 1.0, "metric_checks": 1.0, "bf16": 1.5})
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    assert proof.speedup.median == pytest.approx(3.0)
    assert len({gain.practice for gain in proof.practices}) == 2


def test_a_practice_that_does_not_apply_alone_has_no_figure_for_that(search_in):
    world = World({"bf16": 2.0, "workers=16": 1.5, "persistent_workers": 1.2}, refuses_alone=("persistent_workers",))
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    alone = {gain.practice: gain.alone for gain in proof.practices}
    assert alone["persistent_workers"] is None
    assert alone["workers=16"] is not None
    assert not any("time budget ended" in note for note in proof.notes)


def test_a_round_that_does_not_decide_is_followed_by_more(search_in):
    """The first run of the unchanged job was slow by chance: one pair of a 1.2× proves nothing beside that."""
    world = World({"bf16": 1.2})
    found = search_in(world)
    slow = measured(found.baseline).model_copy(update={"samples_per_s": 7.0})  # the others: 10
    found.baseline = found.baseline.model_copy(update={"measurement": slow})
    proof = proving.prove(world, found, rounds=1)  # type: ignore[arg-type]
    assert proof.pairs == 6
    assert {gain.practice for gain in proof.practices} == {"bf16"}


def test_a_gain_that_the_time_was_too_short_for_is_told_with_the_pairs_that_it_needs(search_in):
    world = World({"bf16": 1.2}, budget_s=6 * TRIAL_S)
    found = search_in(world)
    slow = measured(found.baseline).model_copy(update={"samples_per_s": 8.5})  # the others: 10
    found.baseline = found.baseline.model_copy(update={"measurement": slow})
    proof = proving.prove(world, found, rounds=1)  # type: ignore[arg-type]
    assert proof.practices == ()
    (note,) = [note for note in proof.notes if note.startswith("the gain is within the noise")]
    # The unchanged runs: log 0.85, 0, 0, so 0.0938 apart. 5 pairs: t of 7.9 degrees of freedom for 98.2 % is 2.97,
    # and 2.97 * 0.0938 * sqrt(2 / 5) = 0.176 < log 1.2 = 0.182; 4 pairs would give 0.22.
    assert "after 1 pair of runs" in note
    assert "if it is 1.20×, about 5 pairs would prove it" in note
    # 50 s were used; four pairs more take 80 s.
    assert note.endswith("continue with: vivace tune --resume runs/train-001 --budget 3")


def test_fewer_rounds_than_were_asked_for_are_said(search_in):
    world = World({"bf16": 2.0}, budget_s=6 * TRIAL_S)
    proof = proving.prove(world, search_in(world), rounds=3)  # type: ignore[arg-type]
    assert any("after 1 of 3 rounds" in note for note in proof.notes)


def test_mfu_is_scaled_from_a_run_with_evidence_in_the_same_arithmetic(search_in):
    world = World({"bf16": 2.0, "channels_last": 1.25, "compile": 1.6})
    proof = proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    assert proof.before is not None
    assert proof.after is not None
    assert proof.before.mfu == pytest.approx(0.1)
    assert proof.after.mfu == pytest.approx(0.4)  # bf16 and channels_last together had evidence, at 40 ms per step


def test_compiled_sets_lose_first_what_costs_no_new_compilation(search_in):
    world = World({"channels_last": 1.3, "bf16": 2.0, "metric_checks": 1.1, "compile": 1.5})
    proving.prove(world, search_in(world), rounds=1)  # type: ignore[arg-type]
    without = [name.removeprefix("without-") for name in names(world) if name.startswith("without-")]
    assert without[0] == "metric_checks"
    assert set(without) == {"channels_last", "bf16", "metric_checks", "compile"}
