"""A plan as one section of the HTML report: table, stacked memory bar, timeline of a step. Inline SVG, no
scripts.

Knows the ``Plan`` record and nothing else. Called by the report page.
"""

from __future__ import annotations

from html import escape

from vivace.records.plan import Plan
from vivace.report.plan_facts import plan_rows
from vivace.report.plan_units import figure

__all__ = ["plan_section", "stacked_bar"]

COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
    "#2f4b7c",
    "#d45087",
)
WIDTH, HEIGHT = 720, 28


def stacked_bar(parts: dict[str, float], full: float, unit: str) -> str:
    """An SVG bar of ``parts``; a line marks ``full`` when it is longer than their sum. Titles name each
    part.
    """
    total = max(full, sum(parts.values())) or 1.0
    pieces, left = [], 0.0
    for colour, (name, value) in zip(COLOURS * 2, parts.items(), strict=False):
        width = WIDTH * value / total
        label = f"{name.replace('_', ' ')}: {figure(value)} {unit}"
        pieces.append(
            f'<rect x="{left:.1f}" y="0" width="{width:.1f}" height="{HEIGHT}" fill="{colour}">'
            f"<title>{escape(label)}</title></rect>"
        )
        left += width
    limit = WIDTH * full / total
    pieces.append(f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="0" y2="{HEIGHT}" stroke="#b00" stroke-width="2"/>')
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" height="{HEIGHT}" '
        f'preserveAspectRatio="none">{"".join(pieces)}</svg>'
    )


def _legend(parts: dict[str, float], unit: str) -> str:
    total = sum(parts.values()) or 1.0
    items = [
        f'<span><i style="background:{colour}"></i>{escape(name.replace("_", " "))} {figure(value)} {unit}</span>'
        for colour, (name, value) in zip(COLOURS * 2, parts.items(), strict=False)
        if value / total > 0.005
    ]
    return f'<p class="legend">{" ".join(items)}</p>'


def plan_section(plan: Plan) -> str:
    """HTML of one plan, to be put in a page."""
    title = f"{plan.model} on {plan.gpus} × {plan.gpu} ({plan.cluster})"
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in plan_rows(plan))
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*plan.advice, *plan.assumptions))
    return (
        f'<section class="plan"><h2>{escape(title)}</h2><table class="facts">{table}</table>'
        "<h3>Memory of the most loaded GPU</h3>"
        f"{stacked_bar(plan.memory_parts_gib, plan.available_gib, 'GiB')}"
        f"{_legend(plan.memory_parts_gib, 'GiB')}"
        f"<h3>One step</h3>{stacked_bar(plan.step_parts_ms, plan.step_ms.estimate, 'ms')}"
        f"{_legend(plan.step_parts_ms, 'ms')}<ul>{notes}</ul></section>"
    )
