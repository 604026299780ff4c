"""The job before and after: the figures of both sides of the paired runs, and when compiling pays back. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.measurement import Measurement, Spread
from vivace.records.proof import Payback, Side
from vivace.records.trial import Trial
from vivace.tune.pairs import Verdict

__all__ = ["mfu_after", "payback", "runs_of", "side"]

_SHORTEST_EXTRA_S = 1.0


def mfu_after(trials: Sequence[Trial], verdict: Verdict) -> float | None:
    """FLOPs are counted in runs with evidence only: of the last one in the same arithmetic, scaled by the speed."""
    now = _median([after.samples_per_s for _, after in verdict.pairs])
    for trial in reversed(trials):
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


def side(runs: Sequence[Measurement], mfu: float | None) -> Side:
    return Side(
        samples_per_s=_median([m.samples_per_s for m in runs]),
        step_ms=_spread([m.step_ms for m in runs if m.step_ms is not None]),
        phases_ms=_phases_ms(runs),
        device_memory_gib=_median([m.memory.device.reserved_peak_gib if m.memory.device else None for m in runs]),
        host_memory_gib=_median(
            [m.memory.host.rss_gib + m.memory.host.children_rss_gib if m.memory.host else None for m in runs]
        ),
        joules_per_sample=_median([m.energy.joules_per_sample for m in runs]),
        mfu=mfu,
        losses=tuple(m.trajectory for m in runs),
    )


def _phases_ms(runs: Sequence[Measurement]) -> dict[str, float]:
    """Means over the runs: medians of parts do not add up to the step."""
    names = dict.fromkeys(name for m in runs for name in m.phases_ms)
    return {name: statistics.fmean(_mean_ms(m, name) for m in runs) for name in names}


def _mean_ms(m: Measurement, phase: str) -> float:
    return m.phases_ms[phase].mean if phase in m.phases_ms else 0.0


def _spread(spreads: Sequence[Spread]) -> Spread | None:
    """The median run's figures; but the mean is one over all runs, as its parts are."""
    if not spreads:
        return None
    figures = {name: statistics.median(getattr(s, name) for s in spreads) for name in Spread.model_fields}
    return Spread(**{**figures, "mean": statistics.fmean(s.mean for s in spreads)})


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def payback(
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


def runs_of(trials: Sequence[Trial], words: tuple[str, ...]) -> list[Measurement]:
    """Every run of the winning set: the first of them compiled with cold caches, as a job on another machine will."""
    return [t.measurement for t in trials if t.practices == words and t.measurement is not None]


def _once_s(m: Measurement) -> float | None:
    return None if m.before_window_s is None else m.before_window_s - m.warmup_steps * _step_ms(m) / 1e3


def _step_ms(m: Measurement) -> float:
    return m.step_ms.mean if m.step_ms else 0.0
