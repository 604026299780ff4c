"""Communication by dimension of the layout: attributed right, and never more than all communication."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.exchanges import exchanges
from vivace.measure.inside.profiling.exchanges import by_dimension, shared_us
from vivace.measure.inside.profiling.idle import length, overlap, union
from vivace.measure.inside.profiling.kernels import analyse
from vivace.measure.inside.steps.timeline import Mark, split
from vivace.protocol.payload import Payload, SeenExchanges, Series


def nccl(start_us: float, us: float, described: str, ranks: int, elements: int = 2**18) -> dict:
    arguments = {
        "Process Group Description": described, "Group size": ranks, "In msg nelems": elements,
        "Out msg nelems": elements, "dtype": "Float",
    }  # fmt: skip
    return {
        "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": start_us, "dur": us, "args": arguments
    }  # fmt: skip


def test_a_trace_with_two_process_groups_is_attributed_to_both():
    """Computing until 4 ms; data from 2 to 10, tensor from 6 to 8: the shared 2 ms are halved."""
    gemm = {"ph": "X", "cat": "kernel", "name": "sgemm", "ts": 0, "dur": 4000}
    trace = [gemm, nccl(2000, 8000, "mesh_data", 2), nccl(6000, 2000, "mesh_tensor", 4, 2**19)]
    found = analyse(trace, steps=1)
    assert found["exchanges"] == [
        {
            "dimension": "data", "ranks": 2, "calls_per_step": 1, "mib_per_step": 1, "ms_per_step": 7,
            "exposed_ms_per_step": 5,
        },
        {
            "dimension": "tensor", "ranks": 4, "calls_per_step": 1, "mib_per_step": 2, "ms_per_step": 1,
            "exposed_ms_per_step": 1,
        },
    ]  # fmt: skip
    assert found["communication_exposed_ms_per_step"] == pytest.approx(6)


def test_groups_without_a_mesh_are_named_by_their_ranks():
    kernels = [(nccl(0, 1, "default_pg", 4), (0.0, 1.0)), (nccl(2, 1, "undefined", 2), (2.0, 3.0))]
    assert {one["dimension"] for one in by_dimension(kernels, [], 1, world=4)} == {"all ranks", "groups of 2"}


INTERVALS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 10)).map(lambda pair: (float(pair[0]), float(sum(pair)))), max_size=6
)


@given(st.dictionaries(st.sampled_from(("data", "tensor", "pipeline")), INTERVALS), INTERVALS)
def test_dimensions_add_up_to_all_communication(spans: dict, computing: list):
    whole, exposed = shared_us(spans, computing)
    every = union([span for own in spans.values() for span in own])
    assert sum(whole.values()) == pytest.approx(length(every))
    assert sum(exposed.values()) == pytest.approx(length(every) - overlap(every, union(computing)))
    assert all(exposed[over] <= whole[over] + 1e-9 for over in spans)


def test_waits_of_the_host_go_to_the_dimension_that_they_are_for():
    grad = {"root": 1, "samples": 4, "tokens": None, "grad": True}
    marks = [
        ("open", 0.0), ("fwd+", 0.0), ("comm+", 1.0, "tensor"), ("comm-", 3.0), ("fwd-", 4.0, grad), ("bwd+", 4.0),
        ("comm+", 5.0, "tensor"), ("comm-", 6.0), ("bwd=", 7.0, "data"), ("bwd-", 12.0), ("opt+", 12.0),
        ("opt-", 13.0, {"ends_step": True, "skipped": False}),
    ]  # fmt: skip
    (step,) = split([Mark(*mark) for mark in marks]).steps
    assert step.exchanges_ms == {"tensor": 3, "data": 5}
    assert step.phases_ms["communication"] == 8


def test_figures_are_the_mean_of_the_ranks():
    """The first stage of a pipeline sends two messages, the last one none."""
    first = Payload(rank=0, world=2, exchanges={"pipeline": SeenExchanges(calls=2, bytes=2**20)})
    last = Payload(rank=1, world=2, exchanges={"data": SeenExchanges(calls=4, bytes=2**22)})
    mean = Series(step=[10.0, 10.0], exchanges={"pipeline": [1.0, 3.0], "data": [4.0, 4.0]})
    found = [
        (one.dimension, one.exposed_ms_per_step, one.calls_per_step, one.mib_per_step)
        for one in exchanges([first, last], mean)
    ]
    assert found == [("data", 4, 2, 2), ("pipeline", 2, 1, 0.5)]
    assert exchanges([first], mean) == ()
