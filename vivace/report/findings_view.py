"""Findings as a person reads them in a terminal. Called by ``vivace.cli``; knows records only."""

from __future__ import annotations

import os

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vivace.records.finding import Finding, Findings, Verdict
from vivace.records.measurement import Measurement
from vivace.report.fitting import FittingTable
from vivace.report.steadiness import vary_sentence
from vivace.report.to_copy import indented, to_copy

__all__ = ["findings_view"]

_RISK_COLOURS = {"exact": "green", "rounding": "yellow", "algorithmic": "red"}


def findings_view(findings: Findings, record: Measurement) -> RenderableType:
    """What to fix, the most valuable first: a table, then a paragraph for each. To be printed with ``crop=False``."""
    if not findings.findings:
        return _nothing(findings, record)
    parts: list[RenderableType] = [Text(), _headline(findings, record), Text(), _table(findings)]
    parts += [*_not_recommended(findings), *_notes(findings, record), *_not_explained(findings)]
    for number, finding in enumerate(findings.findings, start=1):
        parts += [Text(), *_paragraph(number, finding)]
    if any(f.applies and f.risk.value != "algorithmic" for f in findings.findings):
        parts += [
            Text(),
            Text("Try them, keep those that pay, prove the gain:  ").append("vivace tune -- …", style="bold"),
        ]
    return Group(*parts)


def _not_recommended(findings: Findings) -> list[RenderableType]:
    """What was seen and would likely cost time: a reader who misses bf16 in the list should know why."""
    listed = ", ".join(
        f"{f.setting or f.practice} {f.likely:.2f}× ({f.likely_low:.2f}–{f.likely_high:.2f})" for f in findings.unlikely
    )
    return [Text(f"not recommended, likely no speedup here: {listed}", style="dim")] if listed else []


def _notes(findings: Findings, record: Measurement) -> list[RenderableType]:
    varies = [Text(f"{vary_sentence(record.steps_vary)}.", style="yellow")] if record.steps_vary is not None else []
    incomplete = [f"incomplete: {findings.incomplete}"] if findings.incomplete else []
    causes = [Text(text, style="cyan") for text in (*incomplete, *(f"cause: {note}" for note in findings.notes))]
    return [*varies, *causes]


def _not_explained(findings: Findings) -> list[RenderableType]:
    """How much of the step no finding accounts for, and what is known about it; causes stand in the notes already."""
    left = findings.unexplained
    if left is None:
        return []
    head = Text(f"not explained: {_figure(left.ms)} of {_figure(left.step_ms)} ms per step", style="bold yellow")
    facts = [Text(f"  {fact}", style="yellow") for fact in left.known if fact not in findings.notes]
    return [Text(), head, *facts]


def _figure(ms: float) -> str:
    """Short steps need decimals: 0.36 of 3.0 ms is not 0 of 3."""
    return f"{ms:.0f}" if ms >= 10 else f"{ms:.2g}"


def _nothing(findings: Findings, record: Measurement) -> RenderableType:
    if findings.verdict is Verdict.UNKNOWN:
        why = "contradicts itself" if record.contradictions else "is incomplete"
        verdict = Text(f"\nNo verdict: the measurement {why}.", style="yellow")
    elif findings.verdict is Verdict.UNEXPLAINED:
        verdict = Text("\nNothing was found, but much of the step is not explained.", style="yellow")
    else:
        verdict = Text("\nWell tuned: no practice would bring 2 % or more.", style="green")
    return Group(verdict, *_not_recommended(findings), *_notes(findings, record), *_not_explained(findings))


def _headline(findings: Findings, record: Measurement) -> Text:
    assert record.step_ms is not None
    text = Text(f"{len(findings.findings)} finding{'s' * (len(findings.findings) > 1)}", style="bold")
    text.append(f" on a mean step of {record.step_ms.mean:.1f} ms; {_what_they_bring(findings)}")
    return text


def _what_they_bring(findings: Findings) -> str:
    paying = [finding.likely for finding in findings.findings if finding.likely > 1]
    if not paying:
        return "room in memory, no time by itself"
    if len(paying) == 1:
        return f"likely speedup: {paying[0]:.2f}×"
    return f"likely speedup: {max(paying):.2f}× from the best, {findings.likely_together:.2f}× from all together"


def _table(findings: Findings) -> Table:
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("practice")
    table.add_column("likely", justify="right")
    table.add_column("range", justify="right")
    table.add_column("at most", justify="right")
    table.add_column("ms/step", justify="right")
    table.add_column("risk")
    table.add_column("without editing")
    table.add_column("where")
    for number, f in enumerate(findings.findings, start=1):
        where = f"{os.path.basename(f.where.file)}:{f.where.line}" if f.where else ""
        risk = f"[{_RISK_COLOURS[f.risk.value]}]{f.risk.value}[/]"
        table.add_row(
            str(number), escape(f.setting or f.practice), f"{f.likely:.2f}×",
            f"{f.likely_low:.2f}–{f.likely_high:.2f}", f"{f.worth:.2f}×", f"{f.exposed_ms:.1f}", risk,
            "yes" if f.applies else "no", escape(where),
        )  # fmt: skip
    return table


def _paragraph(number: int, finding: Finding) -> list[RenderableType]:
    head = Text(f"{number}. {finding.title}", style="bold")
    parts: list[RenderableType] = [head, indented(_sentence(finding.says))]
    if finding.where:
        parts.append(indented(f"{finding.where.file}:{finding.where.line}", "dim"))
    if finding.also:
        parts.append(indented(f"the same lines, also seen as: {', '.join(finding.also)}", "dim"))
    if finding.why_not:
        parts.append(indented(f"by hand only: {finding.why_not}", "dim"))
    parts.append(to_copy(finding.by_hand, 6, "cyan"))
    return parts


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
