"""Idle time of the GPU, charged to what the host was in: on intervals written by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.profiling.idle import idle_during, length, overlap, phases_of, subtract, union
from vivace.measure.inside.profiling.kernels import analyse, in_trace_time

SPANS = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)).map(lambda s: (float(s[0]), float(s[0] + s[1]))))


def call(name: str, start: float, stop: float) -> dict:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": start, "dur": stop - start}


def kernel(start: float, stop: float) -> dict:
    return {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start, "dur": stop - start}


def test_a_wait_for_a_batch_is_the_loaders_whatever_the_gpu_runs_before_and_after():
    """The host waits for a batch from 0 to 50 ms; the GPU is still busy until 20. Then the forward is launched."""
    phases = phases_of([("data+", 0.0), ("data-", 50e3), ("fwd+", 50e3), ("fwd-", 80e3), ("bwd+", 80e3)])
    assert idle_during([(20e3, 50.8e3)], phases, []) == {"loader": 30.0, "forward": pytest.approx(0.8)}


def test_a_host_that_launches_nothing_for_long_is_stalled_and_the_forward_is_not_blamed():
    """The loader's pinning thread holds Python from 10 to 35 ms; before and after, a launch every 50 µs."""
    phases = phases_of([("fwd+", 0.0), ("fwd-", 60e3)])
    starts = [50.0 * n for n in range(200)] + [35e3 + 50.0 * n for n in range(200)]
    launches = [call("cudaLaunchKernel", start, start + 5) for start in starts]
    assert idle_during([(5e3, 5.5e3), (10e3, 36e3)], phases, launches) == {
        "stall": pytest.approx(25.0, rel=1e-2),
        "forward": pytest.approx(1.5, rel=0.1),
    }


def test_python_between_the_parts_of_a_step_is_no_stall():
    assert idle_during([(0.0, 30e3)], phases_of([("fwd+", 40e3), ("fwd-", 50e3)]), []) == {"other": 30.0}


def test_waiting_for_a_batch_that_was_fetched_ahead_is_the_loaders_too():
    phases = phases_of([("wait+", 0.0), ("wait-", 5e3), ("fwd+", 5e3), ("fwd-", 9e3)])
    assert idle_during([(1e3, 5.5e3)], phases, []) == {"loader": 4.0, "forward": 0.5}


def test_the_allocator_is_named_inside_a_forward():
    phases = phases_of([("fwd+", 0.0), ("fwd-", 100e3)])
    calls = [call("cudaMalloc", 0, 30e3), call("cudaFree", 30e3, 35e3), call("cudaLaunchKernel", 35e3, 45e3)]
    assert idle_during([(0.0, 45.5e3)], phases, calls) == {"allocator": 35.0, "forward": 10.5}


def test_a_gap_that_begins_in_a_synchronisation_is_charged_to_it():
    """The host reads a value: the GPU runs dry at 10, the call returns at 10.01, the next kernel comes at 12 ms."""
    phases = phases_of([("fwd+", 0.0), ("fwd-", 5e3), ("bwd+", 11e3), ("bwd-", 20e3)])
    calls = [call("cudaStreamSynchronize", 6e3, 10.01e3)]
    assert idle_during([(10e3, 12e3), (15e3, 16e3)], phases, calls) == {"sync": 2.0, "backward": 1.0}


def test_what_the_host_does_between_phases_is_other():
    assert idle_during([(0.0, 4e3)], phases_of([("fwd+", 1e3), ("fwd-", 1.5e3)]), []) == {"forward": 0.5, "other": 3.5}


def test_the_wait_for_other_ranks_in_a_backward_is_communication():
    phases = phases_of([("bwd+", 0.0), ("bwd=", 10.0), ("bwd-", 30.0)])
    assert phases == {"backward": [(0.0, 10.0)], "communication": [(10.0, 30.0)]}


@given(SPANS, SPANS, SPANS, SPANS)
def test_the_parts_add_up_to_the_idle_time(gaps: list, loading: list, forward: list, allocating: list):
    gaps = union(gaps)
    calls = [call("cudaMalloc", *span) for span in allocating]
    parts = idle_during(gaps, {"loader": loading, "forward": forward}, calls)
    assert sum(parts.values()) == pytest.approx(length(gaps) / 1e3)


@given(SPANS, SPANS)
def test_what_is_subtracted_and_what_is_left_make_the_whole(first: list, second: list):
    first, second = union(first), union(second)
    left = subtract(first, second)
    assert length(left) + overlap(first, second) == pytest.approx(length(first))
    assert overlap(left, second) == 0
    assert left == union(left)


def test_marks_are_read_on_the_clock_of_the_trace():
    """Trace times are microseconds from a base in Unix time; marks are nanoseconds of another clock."""
    trace = {"baseTimeNanoseconds": 1_000_000_000}
    assert in_trace_time([("fwd+", 7_000, None, None)], trace, (5_000, 1_000_100_000)) == [("fwd+", 102.0)]


def test_the_profile_says_what_the_host_was_in_while_the_gpu_was_idle():
    phases = phases_of([("data+", 0.0), ("data-", 6e3), ("fwd+", 6e3), ("fwd-", 20e3)])
    profile = analyse([kernel(1e3, 2e3), kernel(6e3, 9e3), kernel(10e3, 11e3)], 2, phases)
    assert profile["idle_ms_per_step"] == pytest.approx(2.5)
    assert profile["idle_during_ms"] == {"loader": 2.0, "forward": 0.5}


def test_marks_of_another_time_say_nothing():
    phases = phases_of([("fwd+", 5e9), ("fwd-", 6e9)])
    assert analyse([kernel(0, 1), kernel(5, 6)], 1, phases)["idle_during_ms"] == {}
    assert analyse([kernel(0, 1), kernel(5, 6)], 1)["idle_during_ms"] == {}
