"""A run folder as ``vivace tune`` leaves it, from real trials on the embedded example; the proof is put together here.

    python tests/report/sample.py runs/sample            the folder for looking at (minutes on a laptop)

Tests use a shorter one. The figures are measured; only the choice of the winning set is made by hand.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.finding import Finding, Findings, Place, Risk
from vivace.records.measurement import Measurement
from vivace.records.proof import Gain, Harm, Interval, Payback, Proof, Rejected, Side
from vivace.records.trial import Trial
from vivace.tune.trials import TrialSettings, run_trial

__all__ = ["Sample", "build_sample"]


@dataclass(frozen=True)
class Sample:
    arguments: tuple[str, ...] = ("--image-size", "32", "-b", "32")
    steps: int = 40
    rounds: int = 3
    kept: tuple[str, ...] = ("channels_last", "compile")
    left_out: tuple[str, ...] = ("bf16",)


SHORT = Sample(("--image-size", "16", "-b", "8"), steps=5, rounds=2, kept=("channels_last",), left_out=())


def build_sample(folder: Path, sample: Sample = SHORT) -> Proof:
    """Run the trials that are not there yet, and write ``proof.json`` and ``findings.json`` beside them."""
    trials = _Trials(folder, sample)
    climb = [trials.run(f"try-{n}", sample.kept[:n]) for n in range(len(sample.kept) + 1)]
    refused = [trials.run(f"without-{word}", (*sample.kept, word)) for word in sample.left_out]
    alone = [climb[1], *(trials.run(f"alone-{word}", (word,)) for word in sample.kept[1:])]
    less = [trials.run(f"less-{word}", tuple(w for w in sample.kept if w != word)) for word in sample.kept[:-1]]
    less.append(climb[-2])
    before = [climb[0], *(trials.run(f"before-{n}", (), n) for n in range(1, sample.rounds))]
    after = [climb[-1], *(trials.run(f"after-{n}", sample.kept, n) for n in range(1, sample.rounds))]
    best = climb[-1]
    measured = _measured(before[0])
    findings = Findings(
        measurement="trials/try-0", findings=_findings(measured), verdict="improvable", worth=1.9, cause="computing"
    )
    findings.save(folder / "findings.json")
    proof = Proof(
        command=trials.command,
        speedup=_interval([_speed(a) / _speed(b) for a, b in zip(after, before, strict=True)]),
        practices=tuple(
            _gain(word, _speed(alone[n]) / _speed(climb[0]), _speed(best) / _speed(less[n]))
            for n, word in enumerate(sample.kept)
        ),
        trials=tuple(trials.names),
        losses_in_band=True,
        harm=Harm(
            verdict="inside the band", moved=0.004, band=0.02, steps=sample.steps, rounds=sample.rounds,
            says="the tuned losses stay inside the band that the baseline's own reruns span",
        ),
        before=_side(before),
        after=_side(after),
        payback=_payback(before, after),
        rejected=(
            Rejected(practice="tf32", why="not tried: it needs a GPU"),
            *(_rejected(word, trial, best) for word, trial in zip(sample.left_out, refused, strict=True)),
        ),
        proposed=tuple(f for f in findings.findings if not f.applies),
        findings=findings.findings,
        seconds=sum(trials.seconds),
        machine=measured.machine,
        run_with=f"vivace run --with {','.join(sample.kept)} -- {' '.join(trials.command)}",
        notes=("every trial ran in a fresh process",),
    )  # fmt: skip
    proof.save(folder / "proof.json")
    return proof


class _Trials:
    def __init__(self, folder: Path, sample: Sample) -> None:
        self.folder, self.sample = folder, sample
        self.command = (sys.executable, "-m", "vivace.demo.classifier", *sample.arguments)
        self.names: list[str] = []
        self.seconds: list[float] = []

    def run(self, name: str, words: Sequence[str], seed_offset: int = 0) -> Trial:
        settings = TrialSettings(steps=self.sample.steps, evidence=name == "try-0", seed_offset=seed_offset)
        folder = self.folder / "trials" / name
        trial = run_trial(self.command, words, folder, settings, lambda *_: None, lambda _: None)
        self.names.append(f"trials/{name}")
        self.seconds.append(trial.seconds)
        return trial


def _measured(trial: Trial) -> Measurement:
    assert trial.measurement is not None, trial.message
    return trial.measurement


def _speed(trial: Trial) -> float:
    speed = _measured(trial).samples_per_s
    assert speed is not None
    return speed


def _interval(ratios: Sequence[float]) -> Interval:
    return Interval(median=statistics.median(ratios), low=min(ratios), high=max(ratios))


def _gain(word: str, alone: float, last: float) -> Gain:
    practice = get_practice(split_word(word)[0])
    return Gain(
        practice=word,
        risk=Risk(practice.risk),
        title=practice.title,
        alone=Interval(median=alone, low=0.97 * alone, high=1.03 * alone),
        last=Interval(median=last, low=0.97 * last, high=1.03 * last),
        by_hand=practice.by_hand,
    )


def _rejected(word: str, trial: Trial, best: Trial) -> Rejected:
    ratio = _speed(trial) / _speed(best) if trial.outcome == "ok" else None
    return Rejected(practice=word, why="left out by hand, to have something here", outcome=trial.outcome, ratio=ratio)


def _side(trials: Sequence[Trial]) -> Side:
    records = [_measured(trial) for trial in trials]
    first = records[0]
    return Side(
        samples_per_s=statistics.median(_speed(trial) for trial in trials),
        step_ms=first.step_ms,
        phases_ms={phase: figures.mean for phase, figures in first.phases_ms.items()},
        host_memory_gib=first.memory.host.rss_peak_gib if first.memory.host else None,
        mfu=first.mfu,
        losses=tuple(record.trajectory or record.losses for record in records),
    )


def _payback(before: Sequence[Trial], after: Sequence[Trial]) -> Payback:
    extra_s = (_measured(after[0]).before_window_s or 0.0) - (_measured(before[0]).before_window_s or 0.0)
    saved_ms = _mean_step_ms(before[0]) - _mean_step_ms(after[0])
    steps = round(1e3 * max(extra_s, 0.0) / saved_ms) if saved_ms > 0 else None
    return Payback(extra_s=max(extra_s, 0.0), saved_ms_per_step=saved_ms, steps=steps)


def _mean_step_ms(trial: Trial) -> float:
    step = _measured(trial).step_ms
    assert step is not None
    return step.mean


def _findings(measured: Measurement) -> tuple[Finding, ...]:
    loader_ms = measured.phases_ms["loader"].mean
    step_ms = measured.step_ms.mean if measured.step_ms else 1.0
    file = measured.origin.script or "train.py"
    return (
        Finding(
            practice="workers", exposed_ms=loader_ms, worth=step_ms / (step_ms - loader_ms), risk=Risk.EXACT,
            where=Place(file=file, line=56), evidence={"num_workers": 0, "loader_wait_ms": round(loader_ms, 3)},
            applies=True, title="DataLoader workers", setting="workers=2",
            says=f"every step waits {loader_ms:.1f} of {step_ms:.1f} ms for a loader of 0 workers",
            by_hand="DataLoader(…, num_workers=2, persistent_workers=True)",
        ),
        Finding(
            practice="batch_size", exposed_ms=0.1 * step_ms, worth=1.1, risk=Risk.ALGORITHMIC, evidence={"batch": 64},
            applies=False, title="A larger batch", says="memory is nearly empty: a larger batch may be faster",
            by_hand="vivace find batch --flag -b -- COMMAND", why_not="another batch is another optimisation problem",
        ),
    )  # fmt: skip


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    print(build_sample(target, Sample()).speedup)
