"""Memory against published figures (Korthikanti 2022, the ZeRO paper) and the laws that it must obey."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.plan.memory.activations import layer_activations
from vivace.plan.memory.peak import GIB, memory, state_bytes, verdict
from vivace.plan.models.built_in import named_transformer
from vivace.plan.time.step import step_time

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def test_mixed_precision_adam_needs_16_bytes_per_parameter(make_job):
    states = state_bytes(make_job(precision="fp16-deepspeed"), 1e9)
    assert states.total == 16_000_000_000
    assert states.total / GIB == pytest.approx(14.901, abs=1e-3)


@pytest.mark.parametrize(
    ("model", "ranks", "published_gib"),
    [
        ("gpt-22b", 8, 45.5625),
        ("gpt-175b", 64, 45.5625),
        ("gpt-530b", 280, 31.640625),
        ("gpt-1t", 512, 32.958984375),
    ],
)
def test_states_match_figure_1_of_korthikanti(make_job, model, ranks, published_gib):
    """Read off a bar chart by calculon's authors: 2 %."""
    job = make_job(model)
    states = state_bytes(job, job.model.parameters / ranks)
    assert states.total / GIB == pytest.approx(published_gib, rel=0.03)


@pytest.mark.parametrize(
    ("model", "batch", "stages", "mode", "published_gib"),
    [
        ("gpt-22b", 4, 1, "none", 59.25),
        ("gpt-22b", 4, 1, "seqsel", 9.5625),
        ("gpt-175b", 1, 1 + 7 / 24, "none", 66.84375),
        ("gpt-175b", 1, 1 + 7 / 24, "seqsel", 12.3515625),
        ("gpt-530b", 1, 1 + 34 / 105, "none", 114.0234375),
        ("gpt-530b", 1, 1 + 34 / 105, "seqsel", 23.076171875),
        ("gpt-1t", 1, 1, "none", 131.25),
        ("gpt-1t", 1, 1, "seqsel", 26.5625),
    ],
)
def test_activations_match_figure_1_of_korthikanti(model, batch, stages, mode, published_gib):
    """Layers' worth of the first stage, tensor parallel 8; seqsel is sequence parallel with selective
    recomputation.
    """
    found = named_transformer(model)
    both = mode == "seqsel"
    layer = layer_activations(
        found, batch, 2048, tensor=8, sequence_parallel=both, attention="fused-softmax", activation_bytes=2.0
    )
    held = layer.kept("selective" if both else "none") * found.layers * stages
    assert held / GIB == pytest.approx(published_gib, rel=0.04)


def test_layer_activations_are_table_2_of_korthikanti():
    """sbh (34 + 5 a s / h) without parallelism, dropout on, no flash attention."""
    model = named_transformer("gpt-22b")
    unit = 2048 * 4 * model.hidden
    layer = layer_activations(model, 4, 2048, attention="fused-softmax")
    assert layer.total == pytest.approx(unit * (34 + 5 * model.heads * 2048 / model.hidden))
    tensor = layer_activations(model, 4, 2048, tensor=8, attention="fused-softmax")
    assert tensor.total == pytest.approx(unit * (10 + 24 / 8 + 5 * model.heads * 2048 / model.hidden / 8))
    assert layer.kept("selective") == pytest.approx(34 * unit)
    assert layer.kept("full") == pytest.approx(2 * unit)


def test_flash_attention_keeps_statistics_instead_of_the_matrix():
    model = named_transformer("llama-3-8b")
    flash = layer_activations(model, 1, 8192, attention="flash")
    fused = layer_activations(model, 1, 8192, attention="fused-softmax")
    assert flash.core == 4 * model.heads * 8192
    assert fused.core == 2 * model.heads * 8192**2


def test_grouped_queries_shrink_keys_and_values():
    from dataclasses import replace

    grouped = named_transformer("llama-3-8b")
    whole = replace(grouped, kv_heads=grouped.heads)
    saved = layer_activations(whole, 1, 8192).split - layer_activations(grouped, 1, 8192).split
    assert saved == pytest.approx(8192 * 2 * 2 * (whole.kv_width - grouped.kv_width))


def test_verdict_has_three_answers():
    assert [verdict(need, 80) for need in (40, 78, 81)] == ["fits", "tight", "does not fit"]


def test_an_interval_that_ends_beyond_the_card_is_tight():
    assert verdict(71.3, 79.4, 79.9) == "tight"
    assert verdict(70.0, 79.4, 78.4) == "fits"
    assert verdict(80.0, 79.4, 89.6) == "does not fit"


@quick
@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    data=st.sampled_from([1, 2, 8, 32]),
    micro=st.sampled_from([1, 2, 4]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    zero=st.integers(0, 3),
)
def test_parts_sum_to_the_whole(make_job, tensor, data, micro, recompute, zero):
    job = make_job(
        tensor=tensor, data=data, micro_batch=micro, recompute=recompute, zero=zero, global_batch=data * micro
    )
    need = memory(job)
    assert sum(need.parts().values()) == pytest.approx(need.total_gib)
    assert all(value >= 0 for value in need.parts().values())
    step = step_time(job)
    assert sum(step.parts().values()) == pytest.approx(step.total)
    assert all(value >= 0 for value in step.parts().values())


@quick
@given(
    shards=st.sampled_from([1, 2, 4, 8, 16]),
    zero=st.integers(0, 3),
    precision=st.sampled_from(["fp16-mixed", "bf16-amp"]),
)
def test_more_shards_never_need_more_state_memory(make_job, shards, zero, precision):
    few = state_bytes(make_job(data=shards, zero=zero, precision=precision), 1e9).total
    many = state_bytes(make_job(data=2 * shards, zero=zero, precision=precision), 1e9).total
    assert many <= few


@quick
@given(zero=st.integers(0, 2), data=st.sampled_from([2, 8, 64]))
def test_a_higher_zero_stage_never_needs_more_state_memory(make_job, zero, data):
    lower, higher = (state_bytes(make_job(data=data, zero=z), 1e9).total for z in (zero, zero + 1))
    assert higher <= lower


@quick
@given(micro=st.sampled_from([1, 2, 4, 8]), tensor=st.sampled_from([1, 8]))
def test_recomputation_saves_memory_and_costs_time(make_job, micro, tensor):
    none, full = (
        make_job(tensor=tensor, micro_batch=micro, recompute=kind, global_batch=micro) for kind in ("none", "full")
    )
    assert memory(full).activations_gib < memory(none).activations_gib
    assert step_time(full).total > step_time(none).total
