"""From a measurement to findings: every practice looks at the evidence, and what it finds is ranked by its price.

Pure: reads records, runs nothing. The price is an upper bound (Amdahl): the speed-up if the exposed time vanished.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.registry import all_practices, get_practice
from vivace.records.finding import Finding, Place, Risk
from vivace.records.measurement import Measurement

__all__ = ["SMALLEST_WORTH", "diagnose", "makes_room", "together", "worth_of"]

SMALLEST_WORTH = 1.02  # less is noise on most machines
_LARGEST_SHARE = 0.98
# What a family's fixes act on: times of different groups add up, fixes of one group work on the same time.
_GROUPS: Mapping[str, str] = {
    "loader": "waiting", "precision": "computing", "kernels": "computing", "cpu": "computing", "memory": "computing",
    "structure": "computing",
}  # fmt: skip


def diagnose(measurement: Measurement) -> tuple[Finding, ...]:
    """The findings, the most valuable first."""
    if measurement.step_ms is None or measurement.step_ms.mean <= 0:
        return ()
    findings = [
        _finding(practice, found, measurement.step_ms.mean)
        for practice in all_practices()
        if (found := practice.find(measurement)) is not None
    ]
    kept = [f for f in findings if f.worth >= SMALLEST_WORTH or makes_room(f)]
    return tuple(sorted(kept, key=lambda f: -f.worth))


def makes_room(finding: Finding) -> bool:
    """Found because memory is the limit: worth nothing by itself, and perhaps a larger batch."""
    return get_practice(finding.practice).family == "memory"


def worth_of(exposed_ms: float, step_ms: float) -> float:
    """
    >>> round(worth_of(41, 180), 2)
    1.29
    """
    return 1 / (1 - min(max(0.0, exposed_ms / step_ms), _LARGEST_SHARE))


def together(findings: Sequence[Finding], step_ms: float) -> float:
    """Upper bound of all findings at once: fixes of one group compete for the same time, groups add up."""
    left: dict[str, float] = {}
    families = {practice.name: practice.family for practice in all_practices()}
    for finding in findings:
        group = _GROUPS[families[finding.practice]]
        left.setdefault(group, 1.0)
        left[group] *= 1 - min(finding.exposed_ms / step_ms, _LARGEST_SHARE)
    return worth_of(step_ms * sum(1 - share for share in left.values()), step_ms)


def _finding(practice: Practice, found: Found, step_ms: float) -> Finding:
    exposed_ms = min(found.exposed_ms, step_ms) if math.isfinite(found.exposed_ms) else 0.0
    return Finding(
        practice=practice.name,
        exposed_ms=exposed_ms,
        worth=worth_of(exposed_ms, step_ms),
        risk=Risk(practice.risk),
        where=Place(file=found.where[0], line=found.where[1]) if found.where else None,
        evidence=found.evidence,
        applies=practice.change is not None and found.why_not is None,
        title=practice.title,
        says=found.says,
        setting=found.setting or practice.name,
        by_hand=found.by_hand or practice.by_hand,
        why_not=found.why_not or (None if practice.change else "only the script's author can change it"),
        also_try=found.also_try,
    )
