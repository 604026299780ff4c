"""From a measurement to findings: every practice looks at the evidence, and what it finds is ranked by its price.

Pure: reads records, runs nothing. A price has two parts: ``likely``, the speedup to expect with its range; ``worth``,
an upper bound (Amdahl): the speedup if the exposed time vanished.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from vivace.practices.engine import pricing
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.probed import Probed
from vivace.practices.engine.registry import all_practices, get_practice
from vivace.records.finding import Finding, Place, Risk, unknown_likely
from vivace.records.measurement import Measurement

__all__ = [
    "SMALLEST_WORTH", "by_likely", "diagnose", "idle_together", "is_recommended", "likely_of", "likely_together",
    "makes_room", "together", "worth_alone", "worth_of",
]  # fmt: skip

SMALLEST_WORTH = 1.02  # less is noise on most machines
_SMALLEST_LIKELY = 1.005  # less reads 1.00×
_LARGEST_SHARE = 0.98
# A CPU's peak is measured beside whatever else runs: on a busy machine the largest of 25 looks was three times their
# median (13 and 40 GFLOP/s), so that a third of the steps' arithmetic at that peak may be all that is left.
_CEILING_VARIES = 3.0
_RUNS_DIFFER = 1.05  # the same job in two processes: no range is narrower
_PRICES = ("exposed_ms", "idle_ms", "worth", "likely", "likely_low", "likely_high")
_NUMBER_TYPE = {"tf32": "tf32", "bf16": "bf16", "pure_bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def diagnose(measurement: Measurement, probed: Probed | None = None) -> tuple[Finding, ...]:
    """The findings, ordered by what they are likely to bring."""
    if measurement.step_ms is None or measurement.step_ms.mean <= 0:
        return ()
    everything = [(one, found) for one in all_practices() for found in _found(one, measurement, probed)]
    part_of = {practice.name: found.part_of for practice, found in everything}
    findings = [_finding(practice, found, measurement) for practice, found in everything]
    kept = [f for f in findings if f.worth >= SMALLEST_WORTH or makes_room(f)]
    several = [f for f in kept if get_practice(f.practice).find_all is not None]
    return by_likely([*_one_a_cause([f for f in kept if f not in several], part_of), *several])


def _one_a_cause(findings: Sequence[Finding], part_of: dict[str, tuple[str, ...]]) -> list[Finding]:
    """A finding that is only another view of one beside it joins that one, which then is worth what both are."""
    kept = {f.practice: f for f in findings}
    for finding in findings:
        whole = next((kept[name] for name in part_of[finding.practice] if name in kept), None)
        if whole is None:
            continue
        best = {name: max(getattr(whole, name), getattr(finding, name)) for name in _PRICES}
        kept[whole.practice] = whole.model_copy(update={**best, "also": (*whole.also, finding.practice)})
        del kept[finding.practice]
    return list(kept.values())


def _found(practice: Practice, measurement: Measurement, probed: Probed | None) -> tuple[Found, ...]:
    if practice.find_all is not None:
        return practice.find_all(measurement)
    if probed is not None and practice.find_probed is not None:
        found = practice.find_probed(measurement, probed)
    else:
        found = practice.find(measurement)
    return (found,) if found is not None else ()


def by_likely(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: (-f.likely, -f.worth, f.practice)))


def makes_room(finding: Finding) -> bool:
    """Found because memory is the limit: worth nothing by itself, and perhaps a larger batch."""
    return get_practice(finding.practice).family == "memory"


def is_recommended(finding: Finding) -> bool:
    """What would likely cost time is no advice, however large its bound. A tune may still try it."""
    return finding.likely >= _SMALLEST_LIKELY or makes_room(finding)


def worth_of(exposed_ms: float, step_ms: float) -> float:
    """
    >>> round(worth_of(41, 180), 2)
    1.29
    """
    return 1 / (1 - min(max(0.0, exposed_ms / step_ms), _LARGEST_SHARE))


def worth_alone(practice: str, exposed_ms: float, m: Measurement) -> float:
    """The bound of one finding. It leaves the step its arithmetic at the device's peak, unless there is less of it."""
    worth, peak = worth_of(exposed_ms, pricing.step_ms(m)), _worth_at_peak([practice], m)
    if peak is None or not get_practice(practice).same_arithmetic:
        return worth
    return min(worth, max(1.0, peak if pricing.on_gpu(m) else _CEILING_VARIES * peak))


def likely_of(saved: Saved | None, worth: float, step_ms: float) -> tuple[float, float, float]:
    """The speedup to expect, with its low and high end: never above the bound.

    >>> likely_of(Saved(30, 20, 90), 2.0, 120)
    (1.3333333333333333, 1.2, 2.0)
    """
    if saved is None:
        return unknown_likely(worth)
    most = (1 - 1 / worth) * step_ms
    likely, low, high = (step_ms / (step_ms - min(ms, most)) for ms in (saved.ms, saved.low_ms, saved.high_ms))
    return likely, min(low, likely / _RUNS_DIFFER), max(high, min(worth, likely * _RUNS_DIFFER))


def together(findings: Sequence[Finding], measurement: Measurement, unexplained_ms: float = 0.0) -> float:
    """Upper bound of all findings at once. What none takes away is the arithmetic at the device's peak, and the time
    that no finding explains. Where bounds compete for more time than a step has, they say no more than the largest."""
    if not findings or measurement.step_ms is None:
        return 1.0
    step_ms = measurement.step_ms.mean
    saved = _saved_together([(f, f.idle_ms, f.exposed_ms - f.idle_ms) for f in findings], measurement)
    bound, peak = (
        worth_of(min(saved, step_ms - unexplained_ms), step_ms),
        _worth_at_peak([f.practice for f in findings], measurement),
    )
    single = max(finding.worth for finding in findings)
    if saved >= _LARGEST_SHARE * step_ms:
        return single
    return max(single, bound if peak is None else min(bound, peak))


def likely_together(findings: Sequence[Finding], measurement: Measurement) -> float:
    """The speedup to expect of all findings at once: at least that of the best alone, and within their bound."""
    paying = [f for f in findings if f.likely > 1 and f.exposed_ms > 0]
    if not paying or measurement.step_ms is None:
        return 1.0
    step_ms = measurement.step_ms.mean
    shares = []
    for finding in paying:
        saved = step_ms * (1 - 1 / finding.likely)
        idle = saved * finding.idle_ms / finding.exposed_ms
        shares.append((finding, idle, saved - idle))
    single = max(finding.likely for finding in paying)
    return max(single, min(together(paying, measurement), worth_of(_saved_together(shares, measurement), step_ms)))


def _saved_together(saved_ms: Sequence[tuple[Finding, float, float]], measurement: Measurement) -> float:
    """Milliseconds of a step, from what each finding saves of the GPU's idle time and of the rest. A step waits, or the
    GPU is idle, or it computes: fixes of the same part compete for it, and of number types one is taken. Lines of the
    ledger share no time with each other, nor with the rest."""
    parts = _parts(measurement)
    saved_ms = [_by_part(finding, idle, rest, parts) for finding, idle, rest in saved_ms]
    saved = min(parts["idle"], idle_together([(finding, idle) for finding, idle, _ in saved_ms]))
    saved += min(parts["lines"], sum(rest for finding, _, rest in saved_ms if _part_of(finding) == "lines"))
    chosen = _without_lesser_types([finding for finding, _, _ in saved_ms])
    for part in ("waiting", "computing"):
        left = 1.0
        for finding, _, rest in saved_ms:
            if finding in chosen and _part_of(finding) == part and parts[part] > 0:
                left *= 1 - min(1.0, rest / parts[part])
        saved += parts[part] * (1 - left)
    return saved


def idle_together(idle_ms: Sequence[tuple[Finding, float]]) -> float:
    """Idle time is won once, whoever wins it; lines of the ledger have a part of it each."""
    lines = sum(ms for finding, ms in idle_ms if _part_of(finding) == "lines")
    return max((lines, *(ms for finding, ms in idle_ms if _part_of(finding) != "lines")))


def _by_part(finding: Finding, idle: float, rest: float, parts: dict[str, float]) -> tuple[Finding, float, float]:
    """More than the GPU computes is time of the host: it is spent while the GPU is idle, and while it computes."""
    if _part_of(finding) != "computing" or rest <= parts["computing"]:
        return finding, idle, rest
    both = parts["idle"] + parts["computing"]
    while_idle = rest * parts["idle"] / both if both else 0.0
    return finding, idle + while_idle, rest - while_idle


def _parts(m: Measurement) -> dict[str, float]:
    """What a step consists of, in milliseconds: waiting for data and copies, idle, in lines of Python that no practice
    acts on, computing."""
    assert m.step_ms is not None
    waiting = min(m.step_ms.mean, pricing.phase_ms(m, "loader") + pricing.phase_ms(m, "copy"))
    idle = min(m.step_ms.mean - waiting, pricing.launch_idle_ms(m))
    lines = min(m.step_ms.mean - waiting - idle, pricing.lines_ms(m))
    return {"waiting": waiting, "idle": idle, "lines": lines, "computing": m.step_ms.mean - waiting - idle - lines}


def _without_lesser_types(findings: Sequence[Finding]) -> list[Finding]:
    """bf16 or TF32, not both: of the precisions the most valuable."""
    best = max((f.worth for f in findings if f.practice in _NUMBER_TYPE), default=0.0)
    return [f for f in findings if f.practice not in _NUMBER_TYPE or f.worth == best]


def _part_of(finding: Finding) -> str:
    return {"loader": "waiting", "host": "lines"}.get(get_practice(finding.practice).family, "computing")


def _worth_at_peak(practices: Iterable[str], m: Measurement) -> float | None:
    """The speedup that would leave nothing but the model's FLOPs at the dense peak of the fastest number type that was
    found to be possible; None where a peak is not known."""
    if not m.mfu_detail or not m.mfu_detail.value:
        return None
    types = [_NUMBER_TYPE[name] for name in practices if name in _NUMBER_TYPE]
    now = pricing.peak(m, m.mfu_detail.arithmetic)
    peaks = [pricing.peak(m, kind) for kind in types]
    if types and (now is None or None in peaks):
        return None
    faster = max((peak / now for peak in peaks if peak and now), default=1.0)
    return max(1.0, faster) / m.mfu_detail.value


def _finding(practice: Practice, found: Found, measurement: Measurement) -> Finding:
    step_ms = pricing.step_ms(measurement)
    exposed_ms = min(found.exposed_ms, step_ms) if math.isfinite(found.exposed_ms) else 0.0
    most_ms = max(exposed_ms, found.likely.high_ms) if found.likely is not None else exposed_ms
    worth = worth_alone(practice.name, most_ms, measurement)
    likely, low, high = likely_of(found.likely, worth, step_ms)
    return Finding(
        practice=practice.name,
        exposed_ms=exposed_ms,
        idle_ms=min(found.idle_ms, exposed_ms),
        worth=worth,
        likely=likely,
        likely_low=low,
        likely_high=high,
        risk=Risk(practice.risk),
        where=Place(file=found.where[0], line=found.where[1]) if found.where else None,
        evidence=found.evidence,
        applies=practice.change is not None and found.why_not is None,
        title=found.title or practice.title,
        says=found.says,
        setting=found.setting or practice.name,
        by_hand=found.by_hand or practice.by_hand,
        why_not=found.why_not or (None if practice.change else "only the script's author can change it"),
        also_try=found.also_try,
    )
