"""Steps that vary too much for their median to say anything, in a sentence."""

from __future__ import annotations

from vivace.records.measurement import StepsVary
from vivace.report.figures import plain
from vivace.report.phases import phase_name

__all__ = ["vary_sentence"]


def vary_sentence(seen: StepsVary) -> str:
    """Without a full stop at its end."""
    where = f", most of it in {phase_name(seen.phase)}" if seen.phase else ""
    return (
        f"Steps vary from {plain(seen.shortest_ms, 3)} to {plain(seen.longest_ms, 3)} ms (10–90 %: "
        f"{plain(seen.p10_ms, 3)}–{plain(seen.p90_ms, 3)}){where}: the median says little, and another run may "
        "differ a lot. If other jobs use this machine, measure again without them"
    )
