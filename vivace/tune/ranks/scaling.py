"""``tune --ranks``: how much faster are the ranks than one process, and are they the same training?

The practices are proved against the ranks as they are; here the ranks are set beside one process. Equality comes first:
a tune of another training would be of no use. Called by ``tuning``.
"""

from __future__ import annotations

import math

from vivace.errors import ExitCode, UserError
from vivace.records.equality import Equality, EqualityVerdict
from vivace.records.proof import Interval, Scaled
from vivace.records.trial import Outcome, Trial
from vivace.tune.before_after import side
from vivace.tune.bench import Bench
from vivace.tune.comparison import Pair, baseline_first, by_pairs
from vivace.tune.harm_runs import FIRST_SEED
from vivace.tune.looks import speedup_of
from vivace.tune.ranks.comparing import compare
from vivace.tune.ranks.proving import equality_of
from vivace.tune.references import measured

__all__ = ["prove_first", "scaled"]


def prove_first(bench: Bench, baseline: Trial) -> Equality:
    """One process with the seed of the baseline, beside it. Raises ``UserError`` where the ranks train otherwise."""
    mode, ranks = bench.settings.mode, bench.settings.ranks
    alone = bench.run("one-process", norms=True, alone=True)
    if alone.outcome is Outcome.OUT_OF_MEMORY:
        says = "one process alone runs out of memory"
        return equality_of(bench.command, mode, (), ranks, EqualityVerdict.NOT_COMPARED, says, None, alone.seconds)
    if alone.outcome is not Outcome.OK:
        raise UserError(f"the command does not train as one process ({alone.outcome}): {alone.message}")
    compared = compare(measured(alone), measured(baseline), (mode,))
    if compared.failed is not None:  # does one process repeat itself?
        again = bench.run("one-process-again", norms=True, alone=True)
        if again.outcome is Outcome.OK:
            compared = compare(measured(alone), measured(baseline), (mode,), (measured(alone), measured(again)))
    if compared.failed is not None:
        raise UserError(
            f"on {ranks} ranks with {mode} this is another training than in one process: {compared.failed}",
            hint=f"both runs are in {bench.folder}/trials",
            exit_code=ExitCode.NEGATIVE,
        )
    verdict = EqualityVerdict.EQUAL if compared.not_compared is None else EqualityVerdict.NOT_COMPARED
    says = compared.not_compared or compared.says()
    bench.say(f"  [dim]·[/] {f'{ranks} ranks, {mode}':32} {says}")
    return equality_of(bench.command, mode, (), ranks, verdict, says, compared, alone.seconds)


def scaled(bench: Bench, baseline: Trial, equality: Equality, practices: Interval | None, rounds: int) -> Scaled:
    """Pairs of runs, one process and the ranks as they are, as far as the time goes. ``practices``: the speedup of the
    practices on the ranks, which multiplies."""
    pairs = _pairs(bench, rounds) if equality.gradient is not None else []
    alone = [measured(trial) for trial in bench.trials if trial.ranks is None and trial.outcome is Outcome.OK]
    over_one = None
    if pairs and len(alone) > 1:
        of_the_search = [run for run in alone if not any(run is before for before, _ in pairs)]
        over_one = speedup_of(by_pairs(pairs, of_the_search), len(pairs), len(pairs))
    ranks = bench.settings.ranks
    return Scaled(
        ranks=ranks,
        mode=bench.settings.mode,
        over_one=over_one,
        with_practices=_product(over_one, practices),
        efficiency=over_one.median / ranks if over_one is not None else None,
        pairs=len(pairs),
        equality=equality,
        one=side([before for before, _ in pairs] or alone[:1], None) if alone else None,
        split=side([after for _, after in pairs] or [measured(baseline)], None),
        facts=measured(baseline).scale,
    )


def _pairs(bench: Bench, rounds: int) -> list[Pair]:
    pairs: list[Pair] = []
    while len(pairs) < rounds:
        needed_s = sum(trial.seconds for trial in bench.trials[-2:])
        if pairs and not bench.has_time_for(needed_s):
            break
        number = len(pairs)
        sides: dict[bool, Trial] = {}
        for alone in (True, False) if baseline_first(number) else (False, True):
            name = "one" if alone else "ranks"
            trial = bench.run(f"scaling{number}-{name}", seed=FIRST_SEED + number, norms=True, alone=alone)
            if trial.outcome is not Outcome.OK:
                return pairs
            sides[alone] = trial
        pairs.append((measured(sides[True]), measured(sides[False])))
    return pairs


def _product(first: Interval | None, second: Interval | None) -> Interval | None:
    """Of two independent ratios: their logarithms add, and the squares of the half-widths do."""
    if first is None or second is None:
        return None
    median = first.median * second.median
    half = math.hypot(math.log(first.high / first.low) / 2, math.log(second.high / second.low) / 2)
    return Interval(median=median, low=median * math.exp(-half), high=median * math.exp(half))
