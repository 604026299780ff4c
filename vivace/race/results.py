"""What the runs of a race say: figures of each entry, the ratio to the baseline, and what to be wary of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from vivace.durations import Duration
from vivace.race.statistics.comparing import amount_to_target, is_clear, speedup
from vivace.race.statistics.looks import share_of_look
from vivace.race.statistics.sample import Estimate, Sample
from vivace.records.race import Amount, Clock, EntryResult, Outcome, RaceRun, Verdict

__all__ = ["ESTIMATOR", "results_of", "warnings_of"]

ESTIMATOR = (
    "geometric means and Welch's t where every run arrived; where some did not, medians, and the ratios that an exact "
    "rank test with censoring (Gehan) does not reject"
)
_COARSE = 0.1  # of the time to target: what an evaluation interval may be
_OTHER_CADENCE = 1.5

Figure = Callable[[RaceRun], float | None]


def results_of(names: Sequence[str], runs: Sequence[RaceRun], seeds: int, limit: Duration | None) -> list[EntryResult]:
    """One for each entry that ran, the baseline (the first name) first. Ratios take rounds that both have run."""
    share = share_of_look(seeds)
    limit_s = limit.seconds if limit is not None else None
    by_entry = {name: [run for run in runs if run.entry == name] for name in names}
    results = []
    for name in names:
        own, baseline = _in_common(by_entry[name], by_entry[names[0]])
        if not by_entry[name]:
            continue
        ratio = _ratio(baseline, own, lambda run: run.time_s, share, limit_s) if name != names[0] else None
        results.append(
            EntryResult(
                name=name,
                arrived=sum(run.arrived for run in by_entry[name]),
                of=len(by_entry[name]),
                time_s=_amount(by_entry[name], lambda run: run.time_s),
                steps=_amount(by_entry[name], lambda run: run.steps),
                samples=_amount(by_entry[name], lambda run: run.samples),
                joules=_amount(by_entry[name], lambda run: run.joules),
                evaluate_every_s=_cadence_s(by_entry[name]),
                speedup=_as_amount(ratio),
                fewer_steps=_as_amount(_ratio(baseline, own, lambda run: run.steps, share, None) if ratio else None),
                verdict=_verdict(ratio) if ratio is not None else None,
            )
        )
    return results


def warnings_of(results: Sequence[EntryResult], runs: Sequence[RaceRun], clock: Clock) -> list[str]:
    notes = []
    crashed = [run for run in runs if run.outcome is Outcome.CRASHED]
    for run in crashed:
        notes.append(f"{run.entry}, seed {run.seed}, failed and counts as never arrived: {run.message}")
    for result in results:
        every, took = result.evaluate_every_s, result.time_s
        if every is not None and took is not None and math.isfinite(took.value) and every > _COARSE * took.value:
            notes.append(
                f"{result.name} is evaluated every {every:.3g} s, a target of {took.value:.3g} s is known no finer"
            )
    cadences = {result.name: result.evaluate_every_s for result in results if result.evaluate_every_s}
    if cadences and max(cadences.values()) > _OTHER_CADENCE * min(cadences.values()):
        listed = ", ".join(f"{name} every {every:.3g} s" for name, every in cadences.items())
        notes.append(
            f"the entries are evaluated at different intervals, and the rarer one arrives later for it: {listed}"
        )
    at_once = sorted({run.entry for run in runs if run.arrived and run.evaluations == 1})
    if at_once:
        notes.append(
            f"the first evaluation of {', '.join(at_once)} reaches the target: "
            "evaluate more often, or look whether the script goes on from a checkpoint (--in-copy)"
        )
    if clock is Clock.WALL:
        notes.append("the clock counts everything from the start of the command (--clock wall)")
    return notes


def _in_common(own: Sequence[RaceRun], baseline: Sequence[RaceRun]) -> tuple[list[RaceRun], list[RaceRun]]:
    seeds = {run.seed for run in own} & {run.seed for run in baseline}
    return [run for run in own if run.seed in seeds], [run for run in baseline if run.seed in seeds]


def _sample(runs: Sequence[RaceRun], figure: Figure, limit: float | None) -> Sample | None:
    """None where an arrived run lacks the figure."""
    amounts = [figure(run) if run.arrived else math.inf for run in runs]
    if not amounts or any(amount is None or amount <= 0 for amount in amounts):
        return None
    return Sample(tuple(float(amount) for amount in amounts if amount is not None), limit)


def _amount(runs: Sequence[RaceRun], figure: Figure) -> Amount | None:
    sample = _sample(runs, figure, None)
    return _as_amount(amount_to_target(sample)) if sample is not None and sample.arrived else None


def _ratio(
    baseline: Sequence[RaceRun], own: Sequence[RaceRun], figure: Figure, share: float, limit: float | None
) -> Estimate | None:
    over, under = _sample(baseline, figure, limit), _sample(own, figure, limit)
    if over is None or under is None or not (over.arrived or under.arrived):
        return None
    return speedup(over, under, share)


def _as_amount(estimate: Estimate | None) -> Amount | None:
    return Amount(value=estimate.value, low=estimate.low, high=estimate.high) if estimate is not None else None


def _verdict(ratio: Estimate) -> Verdict:
    if not is_clear(ratio):
        return Verdict.UNDECIDED
    return Verdict.FASTER if ratio.low > 1 else Verdict.SLOWER


def _cadence_s(runs: Sequence[RaceRun]) -> float | None:
    gaps = [
        after.time_s - before.time_s for run in runs for before, after in zip(run.curve, run.curve[1:], strict=False)
    ]
    return statistics.median(gaps) if gaps else None
