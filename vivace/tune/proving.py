"""Is the winning set really faster, and does it do no harm? Decides what of it is recommended, and says why."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from vivace.records.base import last_line
from vivace.records.measurement import Measurement
from vivace.records.privacy import safe_command
from vivace.records.proof import Gain, Harm, HarmVerdict, Proof, Rejected, Rejection
from vivace.records.trial import Outcome, Trial
from vivace.tune.ablation import ablation, compiles, leave_one_out, limit_s
from vivace.tune.before_after import mfu_after, payback, runs_of, side
from vivace.tune.bench import Bench
from vivace.tune.candidates import proposals
from vivace.tune.comparison import by_single_runs, ratio_of, speed
from vivace.tune.harm import claims_of, judge
from vivace.tune.harm_runs import SHORT_STEPS, seen_in_the_first_steps, suspects_of
from vivace.tune.looks import MOST_PAIRS, SMALLEST_GAIN
from vivace.tune.pairs import FIRST_SEED, Verdict, in_words, is_exact, noise_interval, paired, reruns_of
from vivace.tune.searching import Search, measured, refusal

__all__ = ["prove"]

_UNSTEADY = 1.3
_COMPILE_S = 120.0  # to compile a model with cold caches, roughly; a model of minutes will need another look
_OUTSIDE = HarmVerdict.OUTSIDE
_HARMED = "it changes the training"


def prove(bench: Bench, found: Search, rounds: int, harm_steps: int | None = None) -> Proof:
    """``harm_steps``: over how many steps to look for harm at least; None: as the practices need."""
    notes: list[str] = []
    # One pair more than is asked for: what is kept if the losses leave the band must be proved too.
    pairs = rounds if is_exact(found.words) else rounds + 1
    lasts = leave_one_out(bench, found, found.words, keep_s=pairs * found.pair_s)
    words = _without_dead_weight(bench, found, lasts, keep_s=pairs * found.pair_s)
    verdict = _without_what_ended(found, paired(bench, found, words, rounds, "round", harm_steps), notes)
    if verdict.words and verdict.harm is not None and verdict.harm.verdict == _OUTSIDE:
        verdict = _without_what_harms(bench, found, verdict, rounds, notes, harm_steps)
    if verdict.words and verdict.speedup.low <= 1.0:
        notes.append(_not_proved(bench, found, verdict, rounds))
        verdict = _dropped(found, verdict, Rejection.NOT_PROVED, "the paired runs do not stand out from the noise")
    of_this_set = dict(lasts) if verdict.words == found.words else {}
    looked_at = {*lasts, *(word for word in verdict.words if word not in found.unproven)}
    of_this_set |= leave_one_out(bench, found, verdict.words, keep_s=found.pair_s, known=looked_at)
    proved = verdict
    verdict = _without_what_slows(bench, found, verdict, of_this_set, rounds)
    gains = ablation(bench, found, verdict, of_this_set if verdict is proved else {}, notes)
    notes += _doubts(gains)
    if not_alone := [g.practice for g in gains if g.practice in found.unproven and g.last is None and g.alone is None]:
        notes.append(f"part of the gain together, not looked at alone for want of time: {', '.join(not_alone)}")
    if 0 < len(verdict.pairs) < rounds and verdict.ended is None:
        notes.append(f"the time budget ended the proof after {len(verdict.pairs)} of {rounds} rounds")
    if unsteady := _unsteady(found, verdict):
        notes.append(unsteady)
    if found.untried:
        notes.append(_how_to_go_on(bench, found, rounds))
    return _proof(bench, found, verdict, gains, notes)


def _not_proved(bench: Bench, found: Search, verdict: Verdict, rounds: int) -> str:
    """And what it would take."""
    run = len(verdict.pairs)
    said = f"the gain does not stand out from the noise after {in_words(run)} of runs: nothing is recommended"
    if verdict.needed is None:
        return said
    seems = f"if it is {verdict.speedup.median:.2f}×, about {verdict.needed} pairs would prove it"
    if verdict.needed <= max(MOST_PAIRS, rounds):
        return f"{said}; {seems}; go on with: {_with_more(bench, (verdict.needed - run) * found.pair_s)}"
    return f"{said}; {seems}: ask for them with --rounds {verdict.needed}"


def _contradicted(trials: Sequence[Trial]) -> list[str]:
    """What ran there was not what was counted: no figure of that trial is to be trusted."""
    return [f"{t.name}: {one.says}" for t in trials if t.measurement for one in t.measurement.contradictions]


def _doubts(gains: Sequence[Gain]) -> list[str]:
    """About single practices of a set that is proved as a whole."""
    last = {gain.practice: gain.last for gain in gains if gain.last is not None}
    slowing = [word for word, interval in last.items() if interval.high < 1]
    idle = [word for word, interval in last.items() if interval.high >= 1 and interval.median < 1 + SMALLEST_GAIN]
    notes = []
    if slowing:
        notes.append(f"it may be faster still without {', '.join(slowing)}: one run each says so, which proves nothing")
    if idle:
        notes.append(f"not shown to help beside the others: {', '.join(idle)}")
    return notes


def _without_what_ended(found: Search, verdict: Verdict, notes: list[str]) -> Verdict:
    """A tuned job that ended once in its own proof would end a training."""
    ended = verdict.ended
    if ended is None:
        return verdict
    who = "the tuned job" if ended.practices else "the unchanged job itself"
    how = f"{who} ended in its paired run {ended.name} ({ended.outcome}: {last_line(ended.message)})"
    if verdict.pairs and not ended.practices:
        notes.append(f"{how}: the proof rests on what was run before")
        return verdict
    notes.append(f"{how}: nothing is recommended")
    return _dropped(found, verdict, Rejection.NOT_PROVED, how)


def _without_dead_weight(bench: Bench, found: Search, lasts: dict[str, Trial], keep_s: float) -> tuple[str, ...]:
    """A practice that paid when it was added may not any more, with what came after it. Of several, each may stand in
    for another: they go together only where a run without all of them is as fast."""
    ratios = {word: ratio_of(measured(trial), measured(found.best)) for word, trial in lasts.items()}
    idle = sorted((word for word, ratio in ratios.items() if ratio <= 1.0), key=ratios.__getitem__)
    if len(idle) > 1 and not _as_fast_without(bench, found, idle, keep_s):
        idle = idle[:1]
    for word in idle:
        why = "beside the others it brings nothing"
        found.rejected[word] = Rejected(practice=word, reason=Rejection.NO_GAIN, why=why, ratio=ratios[word])
        bench.say(f"  [dim]–[/] {word:32} [dim]{ratios[word]:.2f}× beside the others: left out[/]")
    return tuple(word for word in found.words if word not in idle)


def _as_fast_without(bench: Bench, found: Search, idle: Sequence[str], keep_s: float) -> bool:
    left = tuple(word for word in found.words if word not in idle)
    if not left or not bench.has_time_for(keep_s + max(found.again.seconds, found.best.seconds)):
        return False
    trial = bench.run("without-several", left, limit_s=limit_s(found))
    return trial.outcome is Outcome.OK and ratio_of(measured(found.best), measured(trial)) > 1 - found.noise


def _without_what_harms(
    bench: Bench, found: Search, verdict: Verdict, rounds: int, notes: list[str], harm_steps: int | None
) -> Verdict:
    """Leave out what harms, and prove what remains."""
    harmful = _harmful(bench, found, verdict)
    left = tuple(word for word in verdict.words if word not in harmful)
    if not bench.has_time_for(found.pair_s):
        needed_s = sum(not is_exact((word,)) for word in verdict.words) * found.again.seconds + found.pair_s
        notes.append(f"too little time was left to look for what does it; go on with: {_with_more(bench, needed_s)}")
        return _nothing(found, verdict, notes)
    if not left:
        return _nothing(found, verdict, notes)
    for word, why in harmful.items():
        found.rejected[word] = Rejected(practice=word, reason=Rejection.HARMFUL, why=why)
        bench.say(f"  [red]✗[/] {word:32} {why}")
    second = paired(bench, found, left, rounds, "again", harm_steps)
    if second.ended is not None and (second.ended.practices or not second.pairs):
        return _without_what_ended(found, second, notes)
    if second.harm is not None and second.harm.verdict == _OUTSIDE:
        return _nothing(found, second, notes)
    notes.append(
        f"the training changes with all of them ({verdict.speedup.median:.2f}×; {_why_harm(verdict)}); "
        f"left out: {', '.join(harmful)}"
    )
    return second


def _nothing(found: Search, verdict: Verdict, notes: list[str]) -> Verdict:
    notes.append(f"the training changes ({_why_harm(verdict)}): nothing is recommended")
    return _dropped(found, verdict, Rejection.HARMFUL, _HARMED)


def _why_harm(verdict: Verdict) -> str:
    return verdict.harm.says if verdict.harm is not None else ""


def _harmful(bench: Bench, found: Search, verdict: Verdict) -> dict[str, str]:
    """Practices to leave out, and why: those that harm alone, and those that there is no time to look at. Where none
    does it alone, all suspects that may change the rounding."""
    assert verdict.harm is not None
    suspects = suspects_of(verdict.harm, verdict.words)
    suspects = [word for word in suspects if not is_exact((word,))] or suspects
    harmful: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for word in sorted(suspects, key=compiles):
        alone = _alone_with_that_seed(bench, found, word, verdict.harm)
        if alone is None:
            unknown[word] = "it or another changes the training; it could not be looked at alone"
            continue
        claims = claims_of((word,), verdict.pairs[0][0], same_draws=True)
        harm = judge([(verdict.pairs[0][0], alone)], None, claims, _other_seeds(found, verdict))
        if harm.verdict == _OUTSIDE:
            harmful[word] = f"it changes the training: {harm.says}"
    if harmful:
        return harmful | unknown
    return dict.fromkeys(suspects, "it changes the training together with others; none does it alone") | unknown


def _alone_with_that_seed(bench: Bench, found: Search, word: str, harm: Harm) -> Measurement | None:
    """A few steps of it, where the first steps have shown the harm. None: no time for it beside the proof of what
    remains, or it does not run alone."""
    needed_s = max(trial.seconds for trial in bench.trials) if compiles(word) else found.again.seconds
    if not bench.has_time_for(found.pair_s + needed_s):
        return None
    limit = min(limit_s(found), bench.left_s - found.pair_s)
    steps = SHORT_STEPS if seen_in_the_first_steps(harm) else None
    trial = bench.run(f"harm-{word}", (word,), seed=FIRST_SEED, norms=True, limit_s=limit, steps=steps, same_draws=True)
    return measured(trial) if trial.outcome is Outcome.OK and refusal(trial, word) is None else None


def _other_seeds(found: Search, verdict: Verdict) -> list[Measurement]:
    """Baselines for the band; only the first round has the seed of a trial alone."""
    return [*(before for before, _ in verdict.pairs[1:]), measured(found.again)]


def _without_what_slows(bench: Bench, found: Search, verdict: Verdict, lasts: dict[str, Trial], rounds: int) -> Verdict:
    """One run may mislead; against all paired runs, a set that is surely faster without a practice loses it."""
    afters, reruns = [after for _, after in verdict.pairs], reruns_of(found, verdict.pairs)
    against = {w: by_single_runs([measured(t)], afters, reruns).interval() for w, t in lasts.items()}
    slowing = [word for word, last in against.items() if last.high < 1]
    left = tuple(word for word in verdict.words if word not in slowing)
    if not slowing or not left:
        return verdict
    if not bench.has_time_for(found.pair_s):
        return verdict
    second = paired(bench, found, left, rounds, "without-slow")
    if second.ended is not None or second.harm is None or second.harm.verdict == _OUTSIDE:
        return verdict
    if second.speedup.median <= verdict.speedup.median or second.speedup.low <= 1.0:
        return verdict
    for word in slowing:
        why = "the paired runs are faster without it"
        found.rejected[word] = Rejected(practice=word, reason=Rejection.NO_GAIN, why=why, ratio=against[word].median)
    return second


def _dropped(found: Search, verdict: Verdict, reason: Rejection, why: str) -> Verdict:
    """Nothing is recommended after all; what was in the set says why."""
    count = len(verdict.words)
    together = f" ({verdict.speedup.median:.2f}× with {count} practice{'s' if count != 1 else ''})"
    for word in verdict.words:
        ratio = verdict.speedup.median if count == 1 and verdict.pairs else None
        says = why + (together if verdict.pairs else "")
        found.rejected[word] = Rejected(practice=word, reason=reason, why=says, ratio=ratio)
    return Verdict((), verdict.pairs, noise_interval(found, verdict.pairs), verdict.harm, verdict.ended)


def _unsteady(found: Search, verdict: Verdict) -> str:
    """The unchanged job should take as long every time; where it does not, something else has the machine."""
    runs, _tuned = reruns_of(found, verdict.pairs)
    speeds = sorted(speed(m) for m in runs)
    if speeds[-1] < _UNSTEADY * speeds[0]:
        return ""
    unit = "steps" if runs[0].samples_per_s is None else "samples"
    return (
        f"the unchanged job itself ran at between {speeds[0]:.4g} and {speeds[-1]:.4g} {unit}/s: something else takes "
        "this machine's time, and no figure here is surer than that"
    )


def _how_to_go_on(bench: Bench, found: Search, rounds: int) -> str:
    """What was not tried for want of time, and the budget that would hold it: what was run is not run again."""
    trial_s = max(found.again.seconds, found.best.seconds)
    to_compile = sum(compiles(word) for word in found.untried)
    needed_s = (len(found.untried) + 2 * rounds) * trial_s + to_compile * max(_COMPILE_S, trial_s)
    return f"not tried for want of time: {', '.join(found.untried)}; go on with: {_with_more(bench, needed_s)}"


def _with_more(bench: Bench, needed_s: float) -> str:
    minutes = math.ceil((bench.used_s + needed_s) / 60)
    return f"vivace tune --resume {shlex.quote(str(bench.folder))} --budget {minutes}"


def _proof(bench: Bench, found: Search, verdict: Verdict, gains: tuple[Gain, ...], notes: list[str]) -> Proof:
    befores = [before for before, _ in verdict.pairs] or [measured(found.again)]
    afters = [after for _, after in verdict.pairs] if verdict.words else []
    harm = verdict.harm
    return Proof(
        command=safe_command(bench.command),
        speedup=verdict.speedup,
        practices=gains,
        trials=tuple(trial.name for trial in bench.trials),
        losses_in_band=None if harm is None or harm.verdict is HarmVerdict.NOT_COMPARABLE else harm.verdict != _OUTSIDE,
        harm=harm,
        before=side(befores, measured(found.baseline).mfu),
        after=side(afters, mfu_after(bench.trials, verdict)) if afters else None,
        payback=payback(befores, afters, runs_of(bench.trials, verdict.words)) if afters else None,
        rejected=tuple(found.rejected.values()),
        proposed=proposals(found.findings, verdict.words, found.allowed),
        findings=found.findings,
        seconds=bench.used_s,
        machine=measured(found.baseline).machine,
        run_with=_run_with(bench.command, verdict.words),
        ended=None if verdict.ended is None else f"{verdict.ended.name}: {verdict.ended.outcome}",
        notes=(*_contradicted(bench.trials), *notes),
    )


def _run_with(command: Sequence[str], words: Sequence[str]) -> str:
    return shlex.join(["vivace", "run", "--with", ",".join(words), "--", *safe_command(command)]) if words else ""
