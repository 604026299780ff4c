"""Rows of the ledger add up to the step, and none claims time of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.ledger.making import host_ledger
from vivace.protocol.sampling import SeenLine, SeenSampling
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
    ledger = host_ledger(100.0, seen(
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
    ), waiting_for_ranks_ms=9.0)  # fmt: skip
    assert causes(ledger) == {
        Cause.OPERATORS: 15.0, Cause.DISPATCH: 5.0, Cause.DATA: 10.0, Cause.HOST: 8.0, Cause.SAVING: 7.0,
        Cause.LOGGING: 6.0, Cause.EXCHANGE: 3.0, Cause.RANKS: 9.0, Cause.OWN: 2.0, Cause.COPIES: 3.0, Cause.GC: 12.0,
    }  # fmt: skip
    assert {row.name for row in ledger.rows if row.cause is Cause.OPERATORS} == {"matrix multiplication", "optimizer"}
    assert ledger.unexplained_ms == pytest.approx(0.0, abs=1e-9)
    host = next(row for row in ledger.rows if row.cause is Cause.HOST)
    assert in_words(host) == "train.py:4 `line_4()` → json.dumps"


def test_what_launching_operators_takes_is_no_line_of_python():
    ledger = host_ledger(10.0, seen(line(1, 6.0, phase="forward", work="elementwise"), line(1, 4.0, phase="forward")))
    assert causes(ledger) == {Cause.OPERATORS: 6.0, Cause.DISPATCH: 4.0}


def test_what_the_timed_steps_took_beyond_the_sampled_ones_is_not_explained():
    ledger = host_ledger(200.0, seen(line(1, 100.0)))
    assert ledger.rows[0].ms == pytest.approx(110.0)  # a tenth may be chance
    assert ledger.unexplained_ms == pytest.approx(90.0)
    assert ledger.explained == pytest.approx(0.55)
    assert ledger.why_unexplained is not None


def test_waiting_for_a_core_is_told_apart_in_both_windows():
    """The timed steps waited 60 ms for a core, the sampled ones 10: without it both took 90 ms."""
    ledger = host_ledger(150.0, seen(line(1, 100.0, waiting_ms=30.0, no_core_ms=10.0)), no_core_ms=60.0)
    assert causes(ledger) == {Cause.HOST: 90.0, Cause.NO_CORE: 60.0}
    assert next(row for row in ledger.rows if row.cause is Cause.HOST).waiting_ms == pytest.approx(20.0)
    assert ledger.unexplained_ms == pytest.approx(0.0, abs=1e-9)


def test_validation_is_beside_the_step():
    ledger = host_ledger(10.0, seen(line(1, 10.0), line(2, 30.0, phase="validation"), step_ms=10.0, validation_ms=30.0))
    assert causes(ledger) == {Cause.HOST: 10.0}
    assert [(row.name, row.ms) for row in ledger.outside] == [("validation", 30.0)]


PHASES = ["forward", "backward", "optimizer", "loader", "communication", "copy", "other", "validation"]
lines = st.builds(
    lambda number, ms, phase, work, waits, via, torch: line(
        number, ms, phase=phase, work=work, waiting_ms=waits * ms, no_core_ms=waits * ms / 2, via=via,
        leaf_in_torch=torch,
    ),
    st.integers(1, 9), st.floats(0, 50), st.sampled_from(PHASES), st.sampled_from(["", "copies", "elementwise"]),
    st.floats(0, 1), st.sampled_from(["", "json.dumps", "logging.info"]), st.booleans(),
)  # fmt: skip


@given(
    st.lists(lines, max_size=20),
    st.floats(1, 300),
    st.floats(0, 20),
    st.none() | st.floats(0, 200),
    st.none() | st.floats(0, 100),
)
def test_rows_add_up_to_the_step(found, step_ms, gc_ms, no_core_ms, waiting_ms):
    inside = sum(one.ms for one in found if one.phase != "validation")
    ledger = host_ledger(step_ms, seen(*found, step_ms=inside + gc_ms, gc_ms=gc_ms), no_core_ms, waiting_ms)
    assert sum(row.ms for row in ledger.rows) + ledger.unexplained_ms == pytest.approx(step_ms, rel=0.02)
    assert sum(ms for _, ms in groups_of(ledger)) == pytest.approx(step_ms, rel=0.02)
    assert sum(row.ms for row in shown_rows(ledger)) == pytest.approx(step_ms, rel=0.02)
    assert sum_in_words(ledger).startswith(f"{step_ms:.1f} ms = ")
    assert Ledger.model_validate_json(ledger.model_dump_json()) == ledger
