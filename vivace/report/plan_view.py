"""How a plan looks in a terminal: a table, the stacked memory picture, the timeline of a step.

Knows the ``Plan`` record and computes nothing but bar lengths. Called by ``vivace.cli.plan``.
"""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vivace.records.plan import Plan
from vivace.report.plan_facts import plan_rows
from vivace.report.plan_layout import layout_in_short
from vivace.report.plan_units import figure

__all__ = ["bar", "show_plan"]

COLOURS = (
    "blue",
    "cyan",
    "green",
    "yellow",
    "magenta",
    "red",
    "bright_blue",
    "bright_cyan",
    "bright_green",
    "bright_yellow",
    "bright_magenta",
)
VERDICT_COLOURS = {"fits": "green", "tight": "yellow"}
WIDTH = 64


def bar(parts: dict[str, float], full: float, width: int = WIDTH) -> Text:
    """One stacked bar; what is left of ``full`` stays as dots."""
    text, used = Text(), 0
    total = max(full, sum(parts.values())) or 1.0
    done = 0.0
    for colour, value in zip(COLOURS * 2, parts.values(), strict=False):
        done += value
        cells = round(width * done / total) - used
        text.append("█" * cells, style=colour)
        used += cells
    text.append("·" * max(0, width - used), style="dim")
    return text


def _legend(parts: dict[str, float], unit: str) -> Text:
    text = Text()
    for colour, (name, value) in zip(COLOURS * 2, parts.items(), strict=False):
        if value > 0.005 * sum(parts.values()):
            text.append("■ ", style=colour)
            text.append(f"{name.replace('_', ' ')} {figure(value)} {unit}   ")
    return text


def show_plan(plan: Plan, console: Console) -> None:
    table = Table(title=f"{plan.model} on {plan.gpus} x {plan.gpu} ({plan.cluster})", show_header=False)
    for name, words in plan_rows(plan):
        table.add_row(name, _coloured(words, plan.verdict) if name == "memory per GPU" else Text(words))
    console.print(table)
    console.print("memory ", bar(plan.memory_parts_gib, plan.available_gib), sep="")
    console.print(_legend(plan.memory_parts_gib, "GiB"))
    console.print("step   ", bar(plan.step_parts_ms, plan.step_ms.estimate), sep="")
    console.print(_legend(plan.step_parts_ms, "ms"))
    _show_notes(plan, console)


def _coloured(words: str, verdict: str) -> Text:
    """The verdict stands at the end."""
    text = Text(words)
    text.stylize(VERDICT_COLOURS.get(verdict, "red"), len(words) - len(verdict))
    return text


def _show_notes(plan: Plan, console: Console) -> None:
    for advice in plan.advice:
        console.print(f"[bold]sizing[/] {escape(advice)}")
    for other in plan.alternatives:
        figures = f"{figure(other.step_ms)} ms, {figure(other.memory_gib)} GiB; {other.why}"
        console.print(f"[dim]also[/] {layout_in_short(other.layout)}: {escape(figures)}")
    for note in plan.assumptions:
        console.print(f"[dim]note[/] {escape(note)}")
    if plan.run is None:
        amount = "--tokens 1e12" if plan.seq_len else "--epochs 90"
        console.print(f"for time, energy and cost add: {amount} --price 2.5 (per GPU-hour)", highlight=False)
