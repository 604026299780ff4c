"""Is the winning set really faster, and does it do no harm? Decides what of it is recommended, and says why."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from vivace.records.privacy import safe_command
from vivace.records.proof import HarmVerdict, Proof
from vivace.records.trial import Trial
from vivace.tune.attempts import Search
from vivace.tune.before_after import mfu_after, payback, runs_of, side
from vivace.tune.bench import Bench
from vivace.tune.candidates import proposals
from vivace.tune.pairs import varied
from vivace.tune.proof.case import Case
from vivace.tune.proof.harmful import leave_out_what_harms
from vivace.tune.proof.remarks import add_remarks
from vivace.tune.proof.speed import (
    drop_what_ended,
    drop_what_is_not_proved,
    judge_what_is_doubtful,
    leave_out_dead_weight,
    leave_out_what_slows,
    look_at_each_alone,
    run_the_pairs,
    run_without_each,
)
from vivace.tune.references import measured

__all__ = ["STEPS", "prove"]

STEPS: tuple[Callable[[Case], None], ...] = (
    run_without_each,
    leave_out_dead_weight,
    run_the_pairs,
    drop_what_ended,
    leave_out_what_harms,
    drop_what_is_not_proved,
    leave_out_what_slows,
    judge_what_is_doubtful,
    look_at_each_alone,
    add_remarks,
)


def prove(bench: Bench, found: Search, rounds: int, harm_steps: int | None = None) -> Proof:
    """``harm_steps``: over how many steps to look for harm at least; None: as the practices need."""
    case = Case(bench, found, rounds, harm_steps, found.words)
    for step in STEPS:
        step(case)
    return _proof(case)


def _proof(case: Case) -> Proof:
    bench, found, verdict = case.bench, case.found, case.verdict
    befores = [before for before, _ in verdict.pairs] or [measured(found.again)]
    afters = [after for _, after in verdict.pairs] if verdict.words else []
    return Proof(
        command=safe_command(bench.command),
        speedup=verdict.speedup,
        practices=case.gains,
        trials=tuple(trial.name for trial in bench.trials),
        losses_in_band=_in_band(case),
        harm=verdict.harm,
        before=side(befores, measured(found.baseline).mfu),
        after=side(afters, mfu_after(bench.trials, verdict)) if afters else None,
        payback=payback(befores, afters, runs_of(bench.trials, verdict.words)) if afters else None,
        rejected=tuple(found.rejected.values()),
        proposed=proposals(found.findings, verdict.words, found.allowed),
        findings=found.findings,
        seconds=bench.used_s,
        repeats_s=found.repeats_s,
        unchanged=varied(found, verdict.pairs),
        machine=measured(found.baseline).machine,
        run_with=_run_with(bench, verdict.words),
        ended=None if verdict.ended is None else f"{verdict.ended.name}: {verdict.ended.outcome}",
        notes=(*_contradicted(bench.trials), *found.notes, *case.notes),
    )


def _in_band(case: Case) -> bool | None:
    harm = case.verdict.harm
    if harm is None or harm.verdict is HarmVerdict.NOT_COMPARABLE:
        return None
    return harm.verdict is not HarmVerdict.OUTSIDE


def _contradicted(trials: Sequence[Trial]) -> list[str]:
    """What ran there was not what was counted: no figure of that trial is to be trusted."""
    return [f"{t.name}: {one.says}" for t in trials if t.measurement for one in t.measurement.contradictions]


def _run_with(bench: Bench, words: Sequence[str]) -> str:
    mode, ranks = bench.settings.mode, bench.settings.ranks
    if not words and not mode:
        return ""
    split = ["--ranks", str(ranks)] if mode else []
    every = [mode, *words] if mode else words
    return shlex.join(["vivace", "run", *split, "--with", ",".join(every), "--", *safe_command(bench.command)])
