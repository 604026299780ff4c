"""Is the winning set really faster, and does it do no harm? Paired and interleaved runs, then an ablation.

Each round has a seed of its own and runs the baseline and the tuned job one after the other, in alternating order.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.finding import Risk
from vivace.records.measurement import Measurement, Spread
from vivace.records.privacy import safe_command
from vivace.records.proof import Gain, Harm, Interval, Payback, Proof, Rejected, Side
from vivace.records.trial import Trial
from vivace.tune.bench import Bench
from vivace.tune.candidates import proposals, risk_of, without
from vivace.tune.comparison import compare, ratio_of, speed
from vivace.tune.harm import judge
from vivace.tune.searching import Search, measured

__all__ = ["prove"]

Pair = tuple[Measurement, Measurement]
_SHORTEST_EXTRA_S = 1.0
_FIRST_SEED = 1  # the search has 0
_UNSTEADY = 1.3
_COMPILE_S = 120.0  # to compile a model with cold caches, roughly; a model of minutes will need another look
_HARMED = "losses left the band of the baseline's reruns"


@dataclass
class _Verdict:
    """The paired runs of one set of words, and what they say."""

    words: tuple[str, ...]
    pairs: list[Pair]
    speedup: Interval
    harm: Harm | None


def prove(bench: Bench, found: Search, rounds: int) -> Proof:
    notes: list[str] = []
    # One pair more than is asked for: what is kept if the losses leave the band must be proved too.
    pairs = rounds if _is_exact(found.words) else rounds + 1
    lasts = _leave_one_out(bench, found, found.words, keep_s=pairs * found.pair_s)
    words = _without_dead_weight(bench, found, lasts)
    verdict = _paired(bench, found, words, rounds, "round")
    if verdict.words and verdict.harm is not None and verdict.harm.verdict == "outside the band":
        verdict = _without_what_harms(bench, found, verdict, rounds, notes)
    if verdict.words and verdict.speedup.low <= 1.0:
        notes.append("the gain does not stand out from the noise: nothing is recommended")
        verdict = _dropped(found, verdict, "the paired runs do not stand out from the noise")
    of_this_set = dict(lasts) if verdict.words == found.words else {}
    looked_at = {*lasts, *(word for word in verdict.words if word not in found.unproven)}
    of_this_set |= _leave_one_out(bench, found, verdict.words, keep_s=found.pair_s, known=looked_at)
    proved = verdict
    verdict = _without_what_slows(bench, found, verdict, of_this_set, rounds, notes)
    gains = _ablation(bench, found, verdict, lasts, of_this_set if verdict is proved else {}, notes)
    if not_alone := [g.practice for g in gains if g.practice in found.unproven and g.last is None and g.alone is None]:
        notes.append(f"part of the gain together, not looked at alone for want of time: {', '.join(not_alone)}")
    if unsteady := _unsteady(found, verdict):
        notes.append(unsteady)
    if found.untried:
        notes.append(_how_to_go_on(bench, found, rounds))
    return _proof(bench, found, verdict, gains, notes)


def _unsteady(found: Search, verdict: _Verdict) -> str:
    """The unchanged job should take as long every time; where it does not, something else has the machine."""
    runs = [measured(found.baseline), measured(found.again), *(before for before, _ in verdict.pairs)]
    speeds = sorted(speed(m) for m in runs)
    if speeds[-1] < _UNSTEADY * speeds[0]:
        return ""
    return (
        f"the unchanged job itself ran at between {speeds[0]:.4g} and {speeds[-1]:.4g} samples/s: something else takes "
        "this machine's time, and no figure here is surer than that"
    )


def _how_to_go_on(bench: Bench, found: Search, rounds: int) -> str:
    """What was not tried for want of time, and the budget that would hold it: what was run is not run again."""
    trial_s = max(found.again.seconds, found.best.seconds)
    to_compile = sum(_compiles(word) for word in found.untried)
    needed_s = (len(found.untried) + 2 * rounds) * trial_s + to_compile * max(_COMPILE_S, trial_s)
    minutes = math.ceil((bench.used_s + needed_s) / 60)
    how = f"vivace tune --resume {shlex.quote(str(bench.folder))} --budget {minutes}"
    return f"not tried for want of time: {', '.join(found.untried)}; go on with: {how}"


def _leave_one_out(
    bench: Bench, found: Search, words: tuple[str, ...], keep_s: float, known: Collection[str] = ()
) -> dict[str, Trial]:
    """The set without each of its practices, as far as the time goes that the paired runs leave.

    First those that nobody has looked at alone, and of them those without which nothing is compiled anew.
    """
    trials: dict[str, Trial] = {}
    if len(words) == 1:
        return trials
    compiled = any(_compiles(word) for word in words)
    for word in sorted(words, key=lambda w: (w not in found.unproven, compiled and _changes_what_is_compiled(w))):
        needed_s = found.again.seconds
        if compiled and _changes_what_is_compiled(word):
            needed_s = max(trial.seconds for trial in bench.trials)
        if word in known or not bench.has_time_for(keep_s + needed_s):
            continue
        limit_s = min(_limit_s(found), bench.left_s - keep_s)
        trial = bench.run(f"without-{word}", without(words, word), limit_s=limit_s)
        if trial.outcome == "ok":
            trials[word] = trial
    return trials


def _compiles(word: str) -> bool:
    return get_practice(split_word(word)[0]).try_last


def _changes_what_is_compiled(word: str) -> bool:
    return get_practice(split_word(word)[0]).family in ("precision", "kernels") and not _compiles(word)


def _without_dead_weight(bench: Bench, found: Search, lasts: dict[str, Trial]) -> tuple[str, ...]:
    """A practice that paid when it was added may not any more, with what came after it."""
    words = found.words
    for word, trial in lasts.items():
        ratio = ratio_of(measured(trial), measured(found.best))
        if ratio <= 1.0 and len(words) > 1:
            words = without(words, word)
            found.rejected[word] = Rejected(practice=word, why="beside the others it brings nothing", ratio=ratio)
            bench.say(f"  [dim]–[/] {word:32} [dim]{ratio:.2f}× beside the others: left out[/]")
    return words


def _without_what_slows(
    bench: Bench, found: Search, verdict: _Verdict, lasts: dict[str, Trial], rounds: int, notes: list[str]
) -> _Verdict:
    """One run may mislead; against all paired runs, a set that is surely faster without a practice loses it."""
    against = {w: compare([(measured(t), after) for _, after in verdict.pairs]) for w, t in lasts.items()}
    slowing = [word for word, last in against.items() if last.high < 1]
    left = tuple(word for word in verdict.words if word not in slowing)
    if not slowing or not left:
        return verdict
    if not bench.has_time_for(found.pair_s):
        notes.append(f"it may be faster still without {', '.join(slowing)}: there was no time to prove that")
        return verdict
    second = _paired(bench, found, left, rounds, "without-slow")
    if second.harm is None or second.harm.verdict == "outside the band":
        return verdict
    if second.speedup.median <= verdict.speedup.median:
        return verdict
    for word in slowing:
        why = "the paired runs are faster without it"
        found.rejected[word] = Rejected(practice=word, why=why, ratio=against[word].median)
    return second


def _limit_s(found: Search) -> float:
    return 15 + 3 * max(found.again.seconds, found.best.seconds)


def _paired(bench: Bench, found: Search, words: tuple[str, ...], rounds: int, label: str) -> _Verdict:
    if not words:
        return _Verdict((), [], _noise_interval(found), None)
    pairs: list[Pair] = []
    for number in range(rounds):
        if pairs and not bench.has_time_for(sum(trial.seconds for trial in bench.trials[-2:])):  # as the pair before
            break
        pair = _round(bench, words, number, label)
        if pair is None:
            break
        pairs.append(pair)
    if not pairs:
        return _Verdict((), [], _noise_interval(found), None)
    speedup = compare(pairs)
    rerun = (measured(found.baseline), measured(found.again))
    harm = judge(pairs, rerun, _is_exact(words), [measured(found.again)])
    bench.say(
        f"  [bold]=[/] {'all together':32} {speedup.median:.2f}× ({speedup.low:.2f}–{speedup.high:.2f}, "
        f"{len(pairs)} pairs); {harm.verdict}"
    )
    return _Verdict(words, pairs, speedup, harm)


def _round(bench: Bench, words: tuple[str, ...], number: int, label: str) -> Pair | None:
    sides: dict[str, Trial] = {}
    for side in ("baseline", "tuned") if number % 2 == 0 else ("tuned", "baseline"):
        chosen = words if side == "tuned" else ()
        sides[side] = bench.run(f"{label}{number}-{side}", chosen, seed=_FIRST_SEED + number, norms=True)
    if any(trial.outcome != "ok" for trial in sides.values()):
        return None
    return measured(sides["baseline"]), measured(sides["tuned"])


def _is_exact(words: Sequence[str]) -> bool:
    return all(risk_of(word) is Risk.EXACT for word in words)


def _without_what_harms(bench: Bench, found: Search, verdict: _Verdict, rounds: int, notes: list[str]) -> _Verdict:
    """Leave out what moves the losses, and prove what remains."""
    harmful = _harmful(bench, found, verdict)
    left = tuple(word for word in verdict.words if word not in harmful)
    if not harmful or not left or not bench.has_time_for(found.pair_s):
        notes.append(f"losses left the band ({verdict.harm.says if verdict.harm else ''}): nothing is recommended")
        return _dropped(found, verdict, _HARMED)
    for word, why in harmful.items():
        found.rejected[word] = Rejected(practice=word, why=why)
        bench.say(f"  [red]✗[/] {word:32} {why}")
    second = _paired(bench, found, left, rounds, "again")
    if second.harm is not None and second.harm.verdict == "outside the band":
        notes.append(f"losses left the band ({second.harm.says}): nothing is recommended")
        return _dropped(found, second, _HARMED)
    notes.append(f"losses left the band with {', '.join(harmful)}: {verdict.speedup.median:.2f}× with all of them")
    return second


def _harmful(bench: Bench, found: Search, verdict: _Verdict) -> dict[str, str]:
    """Practices to leave out, and why: those that leave the band alone. Without time to look at each of them, all that
    may change the rounding."""
    alone_s = found.again.seconds
    rounding = [word for word in verdict.words if risk_of(word) is not Risk.EXACT]
    if rounding and not bench.has_time_for(found.pair_s + len(rounding) * alone_s):
        return dict.fromkeys(rounding, "losses left the band with it or another; no time to look at each alone")
    harmful = {}
    for word in (*rounding, *(word for word in verdict.words if word not in rounding)):
        if not bench.has_time_for(found.pair_s + alone_s):
            break
        trial = bench.run(f"harm-{word}", (word,), seed=_FIRST_SEED, norms=True)
        if trial.outcome != "ok":
            continue
        # Only round 0 has this trial's seed; the other baselines are there for the band.
        others = [*(before for before, _ in verdict.pairs[1:]), measured(found.again)]
        alone = judge([(verdict.pairs[0][0], measured(trial))], None, _is_exact((word,)), others)
        if alone.verdict == "outside the band":
            harmful[word] = "its losses leave the band of the baseline's reruns"
    return harmful


def _dropped(found: Search, verdict: _Verdict, why: str) -> _Verdict:
    """Nothing is recommended after all; what was in the set says why."""
    for word in verdict.words:
        why_here = f"{why} ({verdict.speedup.median:.2f}× with {len(verdict.words)} practices)"
        found.rejected[word] = Rejected(practice=word, why=why_here)
    return _Verdict((), verdict.pairs, _noise_interval(found), verdict.harm)


def _noise_interval(found: Search) -> Interval:
    """No practice: the speed-up is 1, within what two runs of the baseline differ by."""
    ratio = compare([(measured(found.baseline), measured(found.again))])
    low, high = min(ratio.low, 1.0), max(ratio.high, 1.0)
    return Interval(median=1.0, low=low, high=high)


def _ablation(
    bench: Bench,
    found: Search,
    verdict: _Verdict,
    of_the_search: dict[str, Trial],
    of_this_set: dict[str, Trial],
    notes: list[str],
) -> tuple[Gain, ...]:
    """What each practice brings as the last one added, and alone; as far as the budget goes.

    Trials without one practice: of the set that the search found, and of the one that is proved, which may be smaller.
    """
    last: dict[str, Interval] = {}
    alone: dict[str, Interval] = {}
    if len(verdict.words) == 1:
        last = alone = {verdict.words[0]: verdict.speedup}
    else:
        whole = [after for _, after in verdict.pairs]
        for word, trial in of_the_search.items():
            if word in verdict.words:
                last[word] = compare([(measured(trial), measured(found.best))])
        more = _leave_one_out(bench, found, verdict.words, keep_s=0.0, known={*last, *of_this_set})
        for word, trial in (of_this_set | more).items():
            last[word] = compare([(measured(trial), after) for after in whole])
        for word in verdict.words:
            if trial_alone := _alone(bench, found, word):
                alone[word] = compare([(before, measured(trial_alone)) for before, _ in verdict.pairs])
        if len(last) + len(alone) < 2 * len(verdict.words):
            notes.append("the time budget ended the ablation: some figures are missing")
    return tuple(
        Gain(
            practice=word,
            risk=risk_of(word),
            title=get_practice(split_word(word)[0]).title,
            alone=alone.get(word),
            last=last.get(word),
            by_hand=_by_hand(found, word),
        )
        for word in verdict.words
    )


def _alone(bench: Bench, found: Search, word: str) -> Trial | None:
    if not bench.has_time_for(found.again.seconds):
        return None
    limit_s = min(_limit_s(found), max(bench.left_s, found.again.seconds))
    trial = bench.run(f"alone-{word}", (word,), limit_s=limit_s)
    return trial if trial.outcome == "ok" else None


def _by_hand(found: Search, word: str) -> str:
    """For the argument that was kept, which may not be the one that was found first."""
    name, argument = split_word(word)
    practice = get_practice(name)
    if argument is not None and practice.lines is not None:
        return practice.lines(argument)
    return next((f.by_hand for f in found.findings if f.practice == name), practice.by_hand)


def _proof(bench: Bench, found: Search, verdict: _Verdict, gains: tuple[Gain, ...], notes: list[str]) -> Proof:
    befores = [before for before, _ in verdict.pairs] or [measured(found.again)]
    afters = [after for _, after in verdict.pairs] if verdict.words else []
    harm = verdict.harm
    return Proof(
        command=safe_command(bench.command),
        speedup=verdict.speedup,
        practices=gains,
        trials=tuple(trial.name for trial in bench.trials),
        losses_in_band=None if harm is None or harm.verdict == "not comparable" else harm.verdict != "outside the band",
        harm=harm,
        before=_side(befores, measured(found.baseline).mfu),
        after=_side(afters, _mfu_after(bench, verdict)) if afters else None,
        payback=_payback(befores, afters, _first_runs(bench, verdict.words)) if afters else None,
        rejected=tuple(found.rejected.values()),
        proposed=proposals(found.findings, verdict.words, found.allowed),
        findings=found.findings,
        seconds=bench.used_s,
        machine=measured(found.baseline).machine,
        run_with=_run_with(bench.command, verdict.words),
        notes=tuple(notes),
    )


def _run_with(command: Sequence[str], words: Sequence[str]) -> str:
    return shlex.join(["vivace", "run", "--with", ",".join(words), "--", *safe_command(command)]) if words else ""


def _mfu_after(bench: Bench, verdict: _Verdict) -> float | None:
    """FLOPs are counted in runs with evidence only: of the last one in the same arithmetic, scaled by the speed."""
    now = _median([after.samples_per_s for _, after in verdict.pairs])
    for trial in reversed(bench.trials):
        m = trial.measurement
        if (
            m is not None
            and m.mfu
            and m.samples_per_s
            and now
            and _arithmetic(trial.practices) == _arithmetic(verdict.words)
        ):
            return m.mfu * now / m.samples_per_s
    return None


def _arithmetic(words: Sequence[str]) -> set[str]:
    return {word for word in words if get_practice(split_word(word)[0]).family == "precision"}


def _side(runs: Sequence[Measurement], mfu: float | None) -> Side:
    first = runs[0]
    return Side(
        samples_per_s=_median([m.samples_per_s for m in runs]),
        step_ms=_median_spread([m.step_ms for m in runs if m.step_ms is not None]),
        phases_ms={p: statistics.median(m.phases_ms[p].mean for m in runs) for p in first.phases_ms},
        device_memory_gib=_median([m.memory.device.reserved_peak_gib if m.memory.device else None for m in runs]),
        host_memory_gib=_median(
            [m.memory.host.rss_gib + m.memory.host.children_rss_gib if m.memory.host else None for m in runs]
        ),
        joules_per_sample=_median([m.energy.joules_per_sample for m in runs]),
        mfu=mfu,
        losses=tuple(m.trajectory for m in runs),
    )


def _median_spread(spreads: Sequence[Spread]) -> Spread | None:
    names = Spread.model_fields
    return Spread(**{n: statistics.median(getattr(s, n) for s in spreads) for n in names}) if spreads else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _first_runs(bench: Bench, words: tuple[str, ...]) -> list[Measurement]:
    """Every run of the winning set: the first of them compiled with cold caches, as a job on another machine will."""
    return [t.measurement for t in bench.trials if t.practices == words and t.measurement is not None]


def _payback(
    befores: Sequence[Measurement], afters: Sequence[Measurement], first: Sequence[Measurement]
) -> Payback | None:
    """What the tuned job spends more before its first settled step, and how many steps win it back."""
    before_s = _median([_once_s(m) for m in befores])
    after_s = max((s for m in first if (s := _once_s(m)) is not None), default=None)
    if before_s is None or after_s is None:
        return None
    extra = after_s - before_s
    saved = statistics.median(_step_ms(m) for m in befores) - statistics.median(_step_ms(m) for m in afters)
    if extra < _SHORTEST_EXTRA_S:
        return None
    return Payback(extra_s=extra, saved_ms_per_step=saved, steps=math.ceil(1e3 * extra / saved) if saved > 0 else None)


def _once_s(m: Measurement) -> float | None:
    return None if m.before_window_s is None else m.before_window_s - m.warmup_steps * _step_ms(m) / 1e3


def _step_ms(m: Measurement) -> float:
    return m.step_ms.mean if m.step_ms else 0.0
