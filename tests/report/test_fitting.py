"""Narrow terminals: names and prices are wrapped between words, never cut."""

from __future__ import annotations

import pytest
from report.made import in_terminal, made_finding, made_measurement, made_proof
from rich.text import Text

from vivace.records.finding import Findings
from vivace.report.findings_view import findings_view
from vivace.report.fitting import FittingTable
from vivace.report.proof_view import proof_view
from vivace.report.terminal import measurement_view

NAMES = ("compile=reduce-overhead", "persistent_workers", "bf16")


def table() -> FittingTable:
    made = FittingTable("", "practice", "likely", "range", "without editing", box=None, pad_edge=False)
    for number, name in enumerate(NAMES):
        made.add_row(str(number), name, Text("12.34×"), "1.00–4.61", "yes")
    return made


@pytest.mark.parametrize("width", [30, 40, 55, 60, 70, 80, 120])
def test_every_name_and_figure_is_whole_at_any_width(width: int):
    shown = in_terminal(table(), width=width)
    assert all(name in shown for name in NAMES)
    assert shown.count("12.34×") == shown.count("1.00–4.61") == len(NAMES)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width


def test_a_table_that_fits_stays_a_table():
    assert in_terminal(table(), width=120).splitlines()[1].split() == ["0", NAMES[0], "12.34×", "1.00–4.61", "yes"]
    assert len(in_terminal(table(), width=120).splitlines()) == 1 + len(NAMES)


def test_at_40_columns_a_row_is_a_paragraph():
    first = [line.rstrip() for line in in_terminal(table(), width=40).splitlines()[:3]]
    assert first == ["0  compile=reduce-overhead", "  likely 12.34×, range 1.00–4.61,", "  without editing yes"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_views_are_whole_at_40_columns(width: int):
    findings = Findings(
        measurement="m.json", findings=(made_finding(setting="compile=reduce-overhead"),), verdict="improvable"
    )
    record = made_measurement()
    (found,) = findings.findings
    shown = in_terminal(findings_view(findings, record), width=width)
    assert "compile=reduce-overhead" in shown
    assert f"{found.likely:.2f}×" in shown
    assert f"{found.likely_low:.2f}–{found.likely_high:.2f}" in shown
    assert shown.count("…") == 1  # of "vivace tune -- …"
    measured = in_terminal(measurement_view(record, "vivace-runs/x-001"), width=width)
    assert all(f"{figures.mean:.2f}" in measured for figures in record.phases_ms.values() if figures.mean)
    assert measured.count("█") == min(72, width)
    assert "…" not in in_terminal(proof_view(made_proof()), width=width)
