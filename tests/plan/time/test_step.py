"""The laws of the step time, and published step times of single layers and whole models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.plan.jobs.pipeline import bubble_fraction, in_flight, split_layers
from vivace.plan.time.collectives import Group, all_gather_seconds, all_reduce_seconds
from vivace.plan.time.layer import layer_time
from vivace.plan.time.step import step_time

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(
    tensor=st.sampled_from([1, 2, 8]),
    pipeline=st.sampled_from([1, 2, 8]),
    data=st.sampled_from([1, 4, 16]),
    zero=st.sampled_from([0, 1, 3]),
    factor=st.floats(1.1, 20),
)
def test_time_falls_with_bandwidth(make_job, tensor, pipeline, data, zero, factor):
    job = make_job(tensor=tensor, pipeline=pipeline, data=data, zero=zero, global_batch=8 * data)
    faster = replace(job, machine=job.machine.with_bandwidth(factor))
    assert step_time(faster).total <= step_time(job).total + 1e-12


@quick
@given(batch=st.sampled_from([8, 16, 64]), pipeline=st.sampled_from([1, 4, 8]))
def test_more_micro_batches_take_longer_and_waste_less_in_the_bubble(make_job, batch, pipeline):
    few, many = (step_time(make_job(tensor=8, pipeline=pipeline, global_batch=n)) for n in (batch, 2 * batch))
    assert many.total > few.total
    assert many.bubble / many.total <= few.bubble / few.total + 1e-12


@pytest.mark.parametrize(
    ("sequence_parallel", "recompute", "forward_ms", "backward_ms"),
    [
        (False, "none", 7.7, 11.9),
        (True, "none", 7.2, 11.8),
        (False, "full", 7.7, 19.5),
        (False, "selective", 7.7, 13.2),
        (True, "selective", 7.2, 13.1),
    ],
)
def test_one_layer_of_the_22b_model(make_job, sequence_parallel, recompute, forward_ms, backward_ms):
    """Korthikanti 2022 table 4 (A100, tensor parallel 8, micro-batch 4); fitted, so 12 %."""
    job = make_job(tensor=8, micro_batch=4, sequence_parallel=sequence_parallel)
    forward, backward = layer_time(job).seconds(recompute)
    assert forward * 1e3 == pytest.approx(forward_ms, rel=0.12)
    assert backward * 1e3 == pytest.approx(backward_ms, rel=0.12)


@pytest.mark.parametrize(
    ("model", "pipeline", "virtual", "batch", "seconds"),
    [
        ("gpt-22b", 1, 1, 4, 1.10),
        ("gpt-175b", 8, 3, 64, 13.75),
        ("gpt-530b", 35, 3, 280, 37.83),
        ("gpt-1t", 64, 1, 512, 71.49),
    ],
)
def test_whole_steps_with_selective_recomputation(make_job, model, pipeline, virtual, batch, seconds):
    """Korthikanti 2022 table 5, not fitted: the aim is 10 %."""
    job = make_job(
        model,
        tensor=8,
        pipeline=pipeline,
        virtual_stages=virtual,
        sequence_parallel=True,
        recompute="selective",
        micro_batch=4 if model == "gpt-22b" else 1,
        global_batch=batch,
    )
    assert step_time(job).total == pytest.approx(seconds, rel=0.10)


@pytest.mark.parametrize(("p", "m", "v", "expected"), [(12, 128, 1, 11 / 128), (8, 64, 3, 7 / 192), (1, 4, 1, 0.0)])
def test_bubble_fraction(p, m, v, expected):
    assert bubble_fraction(p, m, v) == pytest.approx(expected)
    assert bubble_fraction(p, m, v, "zb1p") == pytest.approx(expected / 3)


def test_stages_of_bloom_count_embedding_and_head_as_layers():
    stages = split_layers(70, 12)
    assert (stages.first, stages.middle, stages.last) == (5, 6, 5)
    assert stages.first + 10 * stages.middle + stages.last == 70


def test_micro_batches_in_flight(make_job):
    layout = make_job(pipeline=8, virtual_stages=3).layout
    assert in_flight(layout, 64) == pytest.approx(8 * (1 + 7 / 24))
    assert in_flight(replace(layout, virtual_stages=1), 4) == 4
    assert in_flight(replace(layout, virtual_stages=1, schedule="gpipe"), 64) == 64


@pytest.mark.parametrize(
    ("gpus", "mib", "micros"), [(8, 1024, 8193), (8, 64, 580), (4, 256, 1929), (2, 512, 2838), (8, 1, 93)]
)
def test_all_reduce_inside_an_a100_node(dgx, gpus, mib, micros):
    """vTrain's measured NCCL tables (trace/a100); latency and bandwidth alone: 25 %."""
    seconds = all_reduce_seconds(dgx.machine, Group.of(dgx.machine, gpus), mib * 2**20)
    assert seconds * 1e6 == pytest.approx(micros, rel=0.25)


def test_all_gather_moves_half_of_an_all_reduce(dgx):
    group = Group.of(dgx.machine, 8)
    whole, half = all_reduce_seconds(dgx.machine, group, 1e10), all_gather_seconds(dgx.machine, group, 1e10)
    assert half == pytest.approx(whole / 2, rel=0.01)


def test_a_group_across_nodes_is_limited_by_its_network_cards(dgx):
    alone, shared = Group.of(dgx.machine, 8, stride=8), Group.of(dgx.machine, 64)
    assert (alone.per_node, alone.nodes) == (1, 8)
    assert (shared.per_node, shared.nodes) == (8, 8)
    assert all_reduce_seconds(dgx.machine, alone, 1e9) > 3 * all_reduce_seconds(dgx.machine, shared, 1e9)
