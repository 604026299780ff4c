"""The step that looks for what changes the training, and proves the set without it."""

from __future__ import annotations

from vivace.records.measurement import Measurement
from vivace.records.proof import Harm, HarmVerdict, Rejection
from vivace.records.trial import Outcome
from vivace.tune.ablation import compiles, limit_s
from vivace.tune.attempts import refusal
from vivace.tune.harm import claims_of, judge
from vivace.tune.harm_runs import SHORT_STEPS, seen_in_the_first_steps, suspects_of
from vivace.tune.pairs import FIRST_SEED, Verdict, is_exact
from vivace.tune.proof.case import Case, is_harmed
from vivace.tune.proof.speed import drop_what_ended
from vivace.tune.references import measured

__all__ = ["leave_out_what_harms"]

_HARMED = "it changes the training"


def leave_out_what_harms(case: Case) -> None:
    """Leave out what harms, and prove what remains."""
    verdict = case.verdict
    if not verdict.words or not is_harmed(verdict):
        return
    harmful = _harmful(case, verdict)
    left = tuple(word for word in verdict.words if word not in harmful)
    has_time = case.bench.has_time_for(case.found.pair_s)
    if not has_time:
        case.notes.append(_not_enough_time(case, verdict))
    if left and has_time:
        _prove_what_is_left(case, verdict, left, harmful)
    else:
        _drop_all(case, verdict)


def _prove_what_is_left(case: Case, verdict: Verdict, left: tuple[str, ...], harmful: dict[str, str]) -> None:
    for word, why in harmful.items():
        case.reject(word, Rejection.HARMFUL, why)
        case.bench.say(f"  [red]✗[/] {word:32} {why}")
    case.verdict = second = case.run_pairs(left, "again")
    if second.ended is not None and (second.ended.practices or not second.pairs):
        drop_what_ended(case)
    elif is_harmed(second):
        _drop_all(case, second)
    else:
        case.notes.append(
            f"the training changes with all of them ({verdict.speedup.median:.2f}×; {_why_harm(verdict)}); "
            f"left out: {', '.join(harmful)}"
        )


def _not_enough_time(case: Case, verdict: Verdict) -> str:
    suspects = sum(not is_exact((word,)) for word in verdict.words)
    needed_s = suspects * case.found.again.seconds + case.found.pair_s
    return f"not enough time to find out which practice does it; continue with: {case.resume_with(needed_s)}"


def _drop_all(case: Case, verdict: Verdict) -> None:
    case.notes.append(f"the training changes ({_why_harm(verdict)}): nothing is recommended")
    case.drop(verdict, Rejection.HARMFUL, _HARMED)


def _why_harm(verdict: Verdict) -> str:
    return verdict.harm.says if verdict.harm is not None else ""


def _harmful(case: Case, verdict: Verdict) -> dict[str, str]:
    """Practices to leave out, and why: those that harm alone, and those that there is no time to look at. Where none
    does it alone, all suspects that may change the rounding."""
    assert verdict.harm is not None
    suspects = suspects_of(verdict.harm, verdict.words)
    suspects = [word for word in suspects if not is_exact((word,))] or suspects
    harmful: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for word in sorted(suspects, key=compiles):
        alone = _alone_with_that_seed(case, word, verdict.harm)
        if alone is None:
            unknown[word] = "it or another practice changes the training; it was not tested alone"
            continue
        claims = claims_of((word,), verdict.pairs[0][0], same_draws=True)
        harm = judge([(verdict.pairs[0][0], alone)], None, claims, _other_seeds(case, verdict))
        if harm.verdict is HarmVerdict.OUTSIDE:
            harmful[word] = f"{_HARMED}: {harm.says}"
    if harmful:
        return harmful | unknown
    return dict.fromkeys(suspects, "it changes the training together with others; none does it alone") | unknown


def _alone_with_that_seed(case: Case, word: str, harm: Harm) -> Measurement | None:
    """A few steps of it, where the first steps have shown the harm. None: no time for it beside the proof of what
    remains, or it does not run alone."""
    bench, found = case.bench, case.found
    needed_s = max(trial.seconds for trial in bench.trials) if compiles(word) else found.again.seconds
    if not bench.has_time_for(found.pair_s + needed_s):
        return None
    limit = min(limit_s(found), bench.left_s - found.pair_s)
    steps = SHORT_STEPS if seen_in_the_first_steps(harm) else None
    trial = bench.run(f"harm-{word}", (word,), seed=FIRST_SEED, norms=True, limit_s=limit, steps=steps, same_draws=True)
    return measured(trial) if trial.outcome is Outcome.OK and refusal(trial, word) is None else None


def _other_seeds(case: Case, verdict: Verdict) -> list[Measurement]:
    """Baselines for the band; only the first round has the seed of a trial alone."""
    return [*(before for before, _ in verdict.pairs[1:]), measured(case.found.again)]
