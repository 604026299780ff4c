"""Whom time is charged to: pure rules over samples, collections and spans."""

from __future__ import annotations

import gc
import itertools

from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.lines.bytecode import asks_for_a_collection, line_of, lines_that_may_have
from vivace.measure.inside.lines.charging import charge
from vivace.measure.inside.lines.operators import Event, is_operator, segments_of
from vivace.measure.inside.lines.samples import Collection, Sample, Stack

PERIOD = 1000
CODE_A = compile("a()", "a.py", "exec")
CODE_B = compile("b()", "b.py", "exec")
COLLECTS = compile("gc.collect()", "c.py", "exec")


def stack(code) -> Stack:
    return Stack(code, 0, None, code, 0, code)


def sample(at: int, code, took: int = 10, cpu: int = 0, no_core: int = 0, blocked: int = 0) -> Sample:
    return Sample(at, at + took, cpu, no_core, blocked, stack(code))


def test_the_whole_gap_goes_to_the_line_of_this_sample_without_the_look_itself():
    charges = charge([sample(1000, CODE_A), sample(6000, CODE_B)], [], 0, PERIOD, [(0, 10_000, "forward")])
    assert {key[0].code: one.ns for key, one in charges.lines.items()} == {CODE_A: 1000, CODE_B: 4990}
    assert {key[1] for key in charges.lines} == {"forward"}
    assert charges.own_ns == 20
    assert charges.lines[stack(CODE_B), "forward"].late_ns == 4990


def test_a_collection_that_nobody_asked_for_is_taken_out_of_the_line():
    called = len(COLLECTS.co_code) - 1
    at = max(n for n in range(called + 1) if asks_for_a_collection(COLLECTS, n))
    unasked, asked = Collection(2000, 3000, CODE_B, 0), Collection(4000, 5000, COLLECTS, at)
    charges = charge([sample(1000, CODE_A), sample(6000, CODE_B)], [unasked, asked], 0, PERIOD, [])
    assert charges.lines[stack(CODE_B), ""].ns == 4990 - 1000
    assert (charges.gc_ns, charges.gc_runs) == (1000, 1)


def test_waiting_is_what_the_thread_did_not_compute_and_no_core_only_where_it_did_not_block():
    samples = [
        sample(1000, CODE_A),
        sample(6000, CODE_B, cpu=1990, no_core=500),
        sample(9000, CODE_A, cpu=1990, no_core=900, blocked=1),
    ]
    charges = charge(samples, [], 0, PERIOD, [])
    b, a = charges.lines[stack(CODE_B), ""], charges.lines[stack(CODE_A), ""]
    assert (b.ns, b.waiting_ns, b.no_core_ns) == (4990, 3000, 500)
    assert a.no_core_ns == 0


def test_between_a_line_that_waits_and_one_that_computes_the_processors_clock_decides():
    """A computes until 1400; B sleeps until 3700; A computes again. Samples at 1000, 2000, 3000 and 4000."""
    samples = [
        sample(1000, CODE_A, took=0, cpu=1000),
        sample(2000, CODE_B, took=0, cpu=1400, blocked=1),
        sample(3000, CODE_B, took=0, cpu=1400, blocked=2),
        sample(4000, CODE_A, took=0, cpu=1700, blocked=2),
    ]
    charges = charge(samples, [], 0, PERIOD, [])
    assert charges.lines[stack(CODE_A), ""].ns == 1400 + 300
    assert (charges.lines[stack(CODE_B), ""].ns, charges.lines[stack(CODE_B), ""].waiting_ns) == (2300, 2300)


def test_time_inside_operators_is_told_by_family():
    operators = [(1500, 2500, "matrix multiplication"), (3000, 3100, "elementwise"), (5900, 7000, "copies")]
    charges = charge([sample(1000, CODE_A), sample(6000, CODE_B)], [], 0, PERIOD, [], operators)
    assert charges.lines[stack(CODE_B), ""].by_work == {
        "matrix multiplication": 1000, "elementwise": 100, "copies": 100,
    }  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 50), st.booleans()), max_size=40),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=10),
)
def test_nothing_is_lost_or_counted_twice(gaps, collecting):
    samples, now = [], 0
    for gap, took, first in gaps:
        now += gap
        samples.append(sample(now, CODE_A if first else CODE_B, took))
        now += took
    collections, at = [], 0
    for pause, length in collecting:
        at += pause
        collections.append(Collection(at, at + length, CODE_B, 0))
        at += length
    charges = charge(samples, collections, 0, PERIOD, [])
    every = sum(one.ns for one in charges.lines.values()) + charges.gc_ns
    assert every == (samples[-1].ended_ns - charges.own_ns if samples else 0)


def test_the_innermost_operator_counts_and_what_people_name_does_not():
    events = [
        Event(0, 100, "my own region"), Event(10, 90, "aten::linear"), Event(20, 80, "aten::addmm"),
        Event(95, 99, "Optimizer.step#AdamW.step"), Event(96, 98, "aten::_foreach_add_"),
    ]  # fmt: skip
    assert segments_of(events) == [
        (10, 90, "matrix multiplication"), (96, 98, "optimizer"),
    ]  # fmt: skip
    assert not is_operator("autograd::engine::evaluate_function: AddmmBackward0")
    assert not is_operator("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 200), st.sampled_from(["aten::mm", "aten::add"]))))
def test_segments_are_disjoint_and_cover_what_events_cover(spans):
    events = [Event(start, start + length, name) for start, length, name in spans]
    segments = segments_of(events)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(segments))
    assert all(start < stop for start, stop, _ in segments)


SOURCE = """
def f(a, b):
    first(a)
    c = a @ b
    d = c + a
    second(d)
    return d
"""


def test_operators_before_a_call_may_have_spent_the_time_instead():
    code = next(one for one in compile(SOURCE, "x.py", "exec").co_consts if hasattr(one, "co_code"))
    places = {at: line_of(code, at) for at in range(0, len(code.co_code), 2)}
    second = max(at for at, line in places.items() if line == 6)
    first = max(at for at, line in places.items() if line == 3)
    assert lines_that_may_have(code, second)[1] == 6
    assert lines_that_may_have(code, first) == (3, 3)
    assert min(lines_that_may_have(code, at)[0] for at, line in places.items() if line == 6) == 4


def test_only_a_call_of_collect_asks_for_a_collection():
    assert any(asks_for_a_collection(COLLECTS, at) for at in range(len(COLLECTS.co_code)))
    other = compile("gc.disable()", "d.py", "exec")
    assert not any(asks_for_a_collection(other, at) for at in range(len(other.co_code)))
    assert gc.isenabled()
