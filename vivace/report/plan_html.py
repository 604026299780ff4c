"""A plan as one section of the HTML report: table, stacked memory bar, timeline of a step. Inline SVG, no
scripts.

Knows the ``Plan`` record and nothing else. Called by the report page.
"""

from __future__ import annotations

from html import escape

from vivace.records.plan import Plan, PlanInterval

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
        label = f"{name.replace('_', ' ')}: {value:,.1f} {unit}"
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
        f'<span><i style="background:{colour}"></i>{escape(name.replace("_", " "))} {value:,.1f} {unit}</span>'
        for colour, (name, value) in zip(COLOURS * 2, parts.items(), strict=False)
        if value / total > 0.005
    ]
    return f'<p class="legend">{" ".join(items)}</p>'


def _range(value: PlanInterval, unit: str, digits: int = 1) -> str:
    return f"{value.estimate:,.{digits}f} {unit} ({value.low:,.{digits}f} to {value.high:,.{digits}f})"


def _rows(plan: Plan) -> list[tuple[str, str]]:
    layout = plan.layout
    rows = [
        ("parameters", f"{plan.parameters:,}"),
        (
            "layout",
            f"data {layout.data}, tensor {layout.tensor}, pipeline {layout.pipeline}, "
            f"context {layout.context}, "
            f"ZeRO {layout.zero}, micro-batch {layout.micro_batch} × {layout.micro_batches}, "
            f"recompute {layout.recompute}",
        ),
        ("memory per GPU", f"{_range(plan.memory_gib, 'GiB')} of {plan.available_gib:.1f}: {plan.verdict}"),
        ("step", _range(plan.step_ms, "ms")),
        ("throughput", f"{plan.samples_per_s:,.1f} samples/s"),
        ("utilisation", f"MFU {plan.mfu_pct:.1f} %, HFU {plan.hfu_pct:.1f} %"),
    ]
    if plan.run is not None:
        rows += [
            ("days", _range(plan.run.days, "days", 2)),
            ("GPU-hours", _range(plan.run.gpu_hours, "h", 0)),
            ("energy", f"{_range(plan.run.energy_mwh, 'MWh', 2)}, {plan.run.co2_t:,.2f} t CO₂"),
        ]
        if plan.run.cost is not None:
            rows.append(("cost", f"{plan.run.cost:,.0f} {plan.run.currency}"))
    return rows


def plan_section(plan: Plan) -> str:
    """HTML of one plan, to be put in a page."""
    title = f"{plan.model} on {plan.gpus} × {plan.gpu} ({plan.cluster})"
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in _rows(plan))
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*plan.advice, *plan.assumptions))
    return (
        f'<section class="plan"><h2>{escape(title)}</h2><table class="facts">{table}</table>'
        "<h3>Memory of the most loaded GPU</h3>"
        f"{stacked_bar(plan.memory_parts_gib, plan.available_gib, 'GiB')}"
        f"{_legend(plan.memory_parts_gib, 'GiB')}"
        f"<h3>One step</h3>{stacked_bar(plan.step_parts_ms, plan.step_ms.estimate, 'ms')}"
        f"{_legend(plan.step_parts_ms, 'ms')}<ul>{notes}</ul></section>"
    )
