"""Ranks beside one process, in words: for the terminal and the page. Knows records only."""

from __future__ import annotations

from vivace.records.proof import Interval, Scaled
from vivace.records.scale import SplitFacts
from vivace.report.figures import counted

__all__ = ["facts_lines", "scaled_lines"]


def scaled_lines(scaled: Scaled) -> list[str]:
    """How the ranks do beside one process, and what the practices add to that."""
    lines = [f"{scaled.ranks} ranks with {scaled.mode}: {scaled.equality.says}"]
    if scaled.over_one is None or scaled.efficiency is None:
        lines.append("the ranks were not timed beside one process: not enough time")
    else:
        pairs = counted(scaled.pairs, "pair")
        lines.append(
            f"{_ratio(scaled.over_one)} of one process without practices ({pairs}): "
            f"{100 * scaled.efficiency:.0f} % of {scaled.ranks}×"
        )
    if scaled.with_practices is not None:
        lines.append(f"{_ratio(scaled.with_practices)} of one process with the practices")
    return lines + facts_lines(scaled.facts)


def facts_lines(facts: SplitFacts | None) -> list[str]:
    """What is not split, and what is gathered where."""
    if facts is None:
        return []
    lines = [f"{name} runs whole on every rank: {why}" for name, why in facts.whole.items()]
    lines += [f"every rank loads all of {name}: {why}" for name, why in facts.loaded_whole.items()]
    lines += [
        f"gathered {one.per_step:.2g}× a step, {one.mib_per_step:.3g} MiB: {one.by} at {one.file}:{one.line}"
        for one in facts.gathered
    ]
    return lines


def _ratio(interval: Interval) -> str:
    return f"{interval.median:.2f}× ({interval.low:.2f}–{interval.high:.2f})"
