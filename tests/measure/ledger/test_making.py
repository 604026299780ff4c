"""Rows of the ledger add up to the step, and none claims time of another."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vivace.measure.ledger.making import host_ledger
from vivace.measure.ledger.scaling import Timed
from vivace.protocol.sampling import SeenLine, SeenSampling, SeenWorkers
from vivace.records.ledger import Cause, Ledger
from vivace.report.ledger_words import groups_of, in_words, shown_rows, sum_in_words


def line(number: int = 1, ms: float = 10.0, **more) -> SeenLine:
    return SeenLine(
        **{
            "file": "train.py",
            "line": number,
            "first_line": number,
            "code": f"line_{number}()",
            "phase": "other",
            "ms": ms,
            **more,
        }
    )


def seen(*lines: SeenLine, **more) -> SeenSampling:
    step_ms = sum(one.ms for one in lines) + more.get("gc_ms", 0.0)
    return SeenSampling(
        **{"steps": 8, "step_ms": step_ms, "samples": 500, "operators_seen": True, "lines": list(lines), **more}
    )


def causes(ledger: Ledger) -> dict[Cause, float]:
    return {row.cause: pytest.approx(row.ms) for row in ledger.rows}


def test_each_kind_of_time_gets_its_cause():
    ledger = host_ledger(Timed(100.0, {"loader": 10.0, "communication": 12.0, "copy": 3.0}, None, 9.0), seen(
        line(1, 20.0, phase="forward", work="matrix multiplication", leaf_in_torch=True),
        line(1, 5.0, phase="forward", leaf_in_torch=True),
        line(2, 15.0, phase="optimizer", work="elementwise"),
        line(3, 10.0, phase="loader"),
        line(4, 8.0, via="json.dumps"),
        line(5, 7.0, via="torch.serialization.save", leaf_in_torch=True),
        line(6, 6.0, via="logging.Logger.info"),
        line(7, 12.0, phase="communication"),
        line(8, 2.0, ours=True),
        line(9, 3.0, phase="copy"),
        gc_ms=12.0,
    ))  # fmt: skip
    assert causes(ledger) == {
        Cause.OPERATORS: 15.0, Cause.DISPATCH: 5.0, Cause.DATA: 10.0, Cause.HOST: 8.0, Cause.SAVING: 7.0,
        Cause.LOGGING: 6.0, Cause.EXCHANGE: 3.0, Cause.RANKS: 9.0, Cause.OWN: 2.0, Cause.COPIES: 3.0, Cause.GC: 12.0,
    }  # fmt: skip
    assert {row.name for row in ledger.rows if row.cause is Cause.OPERATORS} == {"matrix multiplication", "optimizer"}
    assert ledger.unexplained_ms == pytest.approx(0.0, abs=1e-9)
    host = next(row for row in ledger.rows if row.cause is Cause.HOST)
    assert in_words(host) == "train.py:4 `line_4()` → json.dumps"


def test_what_launching_operators_takes_is_no_line_of_python():
    ledger = host_ledger(
        Timed(10.0), seen(line(1, 6.0, phase="forward", work="elementwise"), line(1, 4.0, phase="forward"))
    )
    assert causes(ledger) == {Cause.OPERATORS: 6.0, Cause.DISPATCH: 4.0}


def test_what_the_timed_steps_took_beyond_the_sampled_ones_is_not_explained():
    ledger = host_ledger(Timed(200.0), seen(line(1, 100.0)))
    assert ledger.rows[0].ms == pytest.approx(110.0)  # a tenth may be chance
    assert ledger.unexplained_ms == pytest.approx(90.0)
    assert ledger.explained == pytest.approx(0.55)
    assert ledger.why_unexplained is not None


def test_waiting_for_a_core_is_told_apart_in_both_windows():
    """The timed steps waited 60 ms for a core, the sampled ones 10: without it both took 90 ms."""
    ledger = host_ledger(Timed(150.0, no_core_ms=60.0), seen(line(1, 100.0, waiting_ms=30.0, no_core_ms=10.0)))
    assert causes(ledger) == {Cause.HOST: 90.0, Cause.NO_CORE: 60.0}
    assert next(row for row in ledger.rows if row.cause is Cause.HOST).waiting_ms == pytest.approx(20.0)
    assert ledger.unexplained_ms == pytest.approx(0.0, abs=1e-9)


def test_validation_is_beside_the_step():
    ledger = host_ledger(
        Timed(10.0), seen(line(1, 10.0), line(2, 30.0, phase="validation"), step_ms=10.0, validation_ms=30.0)
    )
    assert causes(ledger) == {Cause.HOST: 10.0}
    assert [(row.name, row.ms) for row in ledger.outside] == [("validation", 30.0)]


def test_what_the_timed_steps_waited_for_data_is_data_however_long_the_sampled_ones_did():
    """Workers of a busy machine are as slow as it is: 80 ms in the timed steps, 10 in the sampled ones, or none."""
    sampled = [line(1, 10.0, phase="loader"), line(2, 20.0)]
    for found in (sampled, sampled[1:]):
        ledger = host_ledger(Timed(100.0, {"loader": 80.0, "other": 20.0}), seen(*found))
        assert causes(ledger) == {Cause.DATA: 80.0, Cause.HOST: 20.0}


def test_lines_of_workers_tell_what_to_do_about_a_wait():
    loads = line(7, 62.0, phase="fetch", code="img.resize()", waiting_ms=10.0, no_core_ms=9.0)
    reads = line(9, 38.0, phase="fetch", code="read()", waiting_ms=38.0)
    told = SeenWorkers(workers=2, batches=9, batch_ms=100.0, busy=0.98, lines=[loads, reads])
    ledger = host_ledger(Timed(50.0, {"loader": 50.0}), seen(line(1, 50.0, phase="loader"), workers=told))
    (row,) = ledger.rows
    assert "62% of it in train.py:7 `img.resize()`, where it computes" in row.to_do
    assert ledger.workers is not None
    assert [(one.ms, one.waiting_ms) for one in ledger.workers.lines] == [(62.0, 1.0), (38.0, 38.0)]


def milliseconds(most: int) -> st.SearchStrategy[float]:
    """As clocks tell them: no part of a nanosecond."""
    return st.integers(0, 1000 * most).map(lambda us: us / 1000)


PHASES = ["forward", "backward", "optimizer", "loader", "communication", "copy", "other", "validation"]
lines = st.builds(
    lambda number, ms, phase, work, waits, via, torch: line(
        number, ms, phase=phase, work=work, waiting_ms=waits * ms, no_core_ms=waits * ms / 2, via=via,
        leaf_in_torch=torch,
    ),
    st.integers(1, 9), milliseconds(50), st.sampled_from(PHASES), st.sampled_from(["", "copies", "elementwise"]),
    st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from(["", "json.dumps", "logging.info"]), st.booleans(),
)  # fmt: skip


@given(
    st.lists(lines, max_size=20),
    st.dictionaries(st.sampled_from(PHASES[:-1]), milliseconds(100), min_size=1),
    milliseconds(20),
    st.none() | milliseconds(200),
    st.none() | milliseconds(100),
)
def test_rows_add_up_to_the_step(found, phases_ms, gc_ms, no_core_ms, waiting_ms):
    step_ms = sum(phases_ms.values())
    assume(step_ms > 1)
    inside = sum(one.ms for one in found if one.phase != "validation")
    timed = Timed(step_ms, phases_ms, no_core_ms, waiting_ms)
    ledger = host_ledger(timed, seen(*found, step_ms=inside + gc_ms, gc_ms=gc_ms))
    assert sum(row.ms for row in ledger.rows) + ledger.unexplained_ms == pytest.approx(step_ms, rel=0.02)
    assert sum(ms for _, ms in groups_of(ledger)) == pytest.approx(step_ms, rel=0.02)
    assert sum(row.ms for row in shown_rows(ledger)) == pytest.approx(step_ms, rel=0.02)
    assert sum_in_words(ledger).startswith(f"{step_ms:.1f} ms = ")
    assert Ledger.model_validate_json(ledger.model_dump_json()) == ledger
