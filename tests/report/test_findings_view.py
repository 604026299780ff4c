"""Findings in a terminal."""

from __future__ import annotations

from report.made import in_terminal, made_finding, made_measurement

from vivace.records.finding import Findings, Verdict
from vivace.report.findings_view import _figure, findings_view
from vivace.report.ledger_words import GROUPS


def test_a_cause_is_told_also_where_nothing_was_found():
    findings = Findings(measurement="m.json", findings=(), verdict="tuned", notes=("the loader costs 12 ms per step",))
    shown = in_terminal(findings_view(findings, made_measurement()))
    assert "Well tuned" in shown
    assert shown.endswith("\ncause: the loader costs 12 ms per step\n")
    unknown = findings.model_copy(update={"verdict": Verdict.UNKNOWN, "incomplete": "the run ended", "notes": ()})
    assert in_terminal(findings_view(unknown, made_measurement())).endswith(
        "is incomplete.\nincomplete: the run ended\n"
    )


def test_lines_to_write_by_hand_are_not_broken():
    line = f"DataLoader({'x' * 100})"
    findings = Findings(measurement="m.json", findings=(made_finding(by_hand=line),), verdict="improvable")
    assert f"\n      {line}\n" in in_terminal(findings_view(findings, made_measurement()))


def test_what_is_not_explained_of_a_short_step_keeps_its_decimals():
    assert (_figure(0.36), _figure(3.02), _figure(62.4)) == ("0.36", "3", "62")


def test_a_group_of_the_ledger_is_understood_wherever_it_stands_in_the_sum():
    """Groups are sorted by size: a name must not refer to the one before it."""
    assert not [name for name, _, _ in GROUPS if "it" in name.split()]
