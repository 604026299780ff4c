"""What is read from a job's lines and reports."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.chaos.watching import Lines, straggler_of
from vivace.protocol.chaos import ChaosOrder, ChaosReport, Fault, Told


def test_what_was_printed_before_is_no_news():
    lines = Lines()
    lines.feed("step 1 error 0.3")
    lines.struck(time.time())
    lines.feed("step 2 error 0.2")
    assert lines.trouble is None
    lines.feed("step 3 error nan")
    assert lines.trouble is not None
    assert lines.trouble.text == "step 3 error nan"
    assert (lines.first_step, lines.last_step, lines.last_step_before_fault) == (1, 3, 1)


def test_a_line_may_be_read_before_the_report_of_the_fault():
    lines, at = Lines(), time.time() - 1
    lines.feed("RuntimeError: connection closed by peer")
    assert lines.trouble is None
    lines.struck(at)
    assert lines.trouble is not None


def test_what_a_job_says_while_vivace_ends_it_does_not_count():
    lines = Lines()
    lines.struck(time.time())
    lines.closed = True
    lines.feed("Received 15 death signal, shutting down workers")
    assert lines.trouble is None


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("step 12/300  loss 4.1", 12),
        ("[Iter: 7] loss", 7),
        ("iteration=5", 5),
        ("global_step 9", 9),
        ("Epoch 3: stepped on 4 toes", None),
        ("loss 0.3", None),
    ],
)
def test_steps_in_lines(line: str, step: int | None):
    lines = Lines()
    lines.feed(line)
    assert lines.last_step == step


@given(
    late=st.lists(st.floats(0, 5), min_size=2, max_size=5),
    slow=st.integers(0, 4),
    more=st.floats(0.5, 9),
    steps=st.integers(1, 6),
)
def test_the_straggler_is_the_one_that_begins_last(late: list[float], slow: int, more: float, steps: int):
    slow %= len(late)
    late[slow] = max(late) + more
    reports = [
        ChaosReport(Told.STEP, rank, rank, step, 1000.0 * step, 1000.0 * step + late[rank])
        for step in range(1, steps + 1)
        for rank in range(len(late))
    ]
    found = straggler_of(reports, range(1, steps + 1))
    assert found is not None
    assert found[0] == slow
    assert found[1] == pytest.approx(1000 * (late[slow] - min(late)), abs=1e-3)


def test_one_rank_has_no_straggler():
    assert straggler_of([ChaosReport(Told.STEP, 0, 1, 1, 5.0, 4.0)], range(9)) is None


@settings(max_examples=20)
@given(st.sampled_from([None, *Fault]), st.integers(0, 99), st.one_of(st.none(), st.text()))
def test_orders_and_reports_survive_json(fault: Fault | None, rank: int, fill: str | None):
    order = ChaosOrder("x", fault, rank, fill=fill)
    assert ChaosOrder.from_text(order.to_text()) == order
    report = ChaosReport(Told.FAULT, rank, 3, 4, 5.5)
    assert ChaosReport.from_text(report.to_text()) == report
    with pytest.raises(ValueError, match="report"):
        ChaosReport.from_text('{"told": "step"}')
