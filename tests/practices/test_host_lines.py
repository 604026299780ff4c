"""Lines of the ledger as findings: each its own, none twice, and none that does not stand out."""

from __future__ import annotations

import pytest
from practices.evidence import measurement

from vivace.records.finding import Verdict
from vivace.records.ledger import Cause, Ledger, Place, Row, Workers
from vivace.tune.checking import findings_of
from vivace.tune.diagnosis import diagnose, idle_together, likely_together
from vivace.tune.probing import Causes


def row(cause: Cause, ms: float, line: int = 0, waiting_ms: float = 0.0) -> Row:
    where = Place(file="train.py", line=line, first_line=line, code=f"line_{line}()") if line else None
    return Row(cause=cause, name="x", ms=ms, waiting_ms=waiting_ms, where=where, to_do="mend it")


def ledger(*rows: Row, step_ms: float = 100.0) -> Ledger:
    left = step_ms - sum(one.ms for one in rows)
    return Ledger(step_ms=step_ms, rows=rows, unexplained_ms=max(0.0, left))


def lines_of(record) -> list:
    return [finding for finding in diagnose(record) if finding.practice == "host_lines"]


def test_every_line_of_five_per_cent_is_a_finding_with_its_place_and_what_to_do():
    rows = (
        row(Cause.OPERATORS, 50.0),
        row(Cause.HOST, 30.0, 7, waiting_ms=29.0),
        row(Cause.GC, 12.0),
        row(Cause.HOST, 4.9, 9),
    )
    sleeps, collects = lines_of(measurement(on_gpu=False, ledger=ledger(*rows)))
    assert (sleeps.where.line, sleeps.exposed_ms, sleeps.by_hand, sleeps.applies) == (7, 30.0, "mend it", False)
    assert sleeps.likely == pytest.approx(1 / 0.7, rel=1e-3)
    assert "while the host is in `line_7()`" in sleeps.says
    assert (collects.where, collects.title) == (None, "the garbage collector in the loop")


def test_what_has_no_line_and_what_is_the_machines_is_no_finding():
    loader = row(Cause.DATA, 10.0, 3).model_copy(update={"via": "torch.utils.data.dataloader._BaseDataLoaderIter"})
    rows = (row(Cause.DISPATCH, 40.0), row(Cause.NO_CORE, 30.0), row(Cause.HOST, 20.0), loader)
    assert lines_of(measurement(on_gpu=False, ledger=ledger(*rows))) == []


def test_a_line_of_the_data_set_is_a_finding_where_the_loop_makes_its_batches_itself():
    in_the_loop = ledger(row(Cause.OPERATORS, 70.0), row(Cause.DATA, 30.0, 3))
    (found,) = lines_of(measurement(on_gpu=False, ledger=in_the_loop))
    assert (found.where.line, found.exposed_ms, found.title) == (3, 30.0, "a line that makes the batch in the loop")
    workers = Workers(workers=2, batches=9, batch_ms=30.0, busy=0.9)
    waits = in_the_loop.model_copy(update={"workers": workers})
    assert lines_of(measurement(on_gpu=False, ledger=waits)) == []


def test_lines_share_no_time_and_add_up():
    record = measurement(
        on_gpu=False, ledger=ledger(row(Cause.OPERATORS, 50.0), row(Cause.HOST, 30.0, 7), row(Cause.HOST, 20.0, 8))
    )
    assert likely_together(lines_of(record), record) == pytest.approx(2.0, rel=1e-3)


def test_on_a_gpu_the_idle_time_of_lines_adds_up_and_that_of_others_is_won_once():
    record = measurement(ledger=ledger(row(Cause.LIMIT, 40.0), row(Cause.HOST, 30.0, 7), row(Cause.SAVING, 25.0, 8)))
    first, second = lines_of(record)
    assert (first.idle_ms, second.idle_ms) == (30.0, 25.0)
    assert "the GPU waits" in first.says
    other = first.model_copy(update={"practice": "compile"})
    assert idle_together([(first, 30.0), (second, 25.0), (other, 40.0)]) == 55.0
    assert idle_together([(first, 30.0), (other, 40.0), (other, 20.0)]) == 40.0


def test_tuned_needs_nine_tenths_explained_and_no_line_that_is_worth_five_per_cent():
    fine = (row(Cause.OPERATORS, 92.0), row(Cause.HOST, 4.0, 7))
    verdicts = {}
    for name, rows in {
        "fine": fine,
        "a line": (*fine, row(Cause.HOST, 6.0, 8)),
        "not seen": fine[:1] and (row(Cause.OPERATORS, 80.0),),
    }.items():
        record = measurement(on_gpu=False, ledger=ledger(*rows))
        found = findings_of(record, Causes(), "measurement.json")
        verdicts[name] = found.verdict, found.unexplained is not None
    assert verdicts["a line"][0] is Verdict.IMPROVABLE
    assert verdicts["not seen"][1]
    assert not verdicts["fine"][1]
    assert verdicts["not seen"][0] is not Verdict.TUNED
