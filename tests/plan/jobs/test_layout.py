"""Illegal questions get the reason and the nearest legal value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vivace.errors import UserError
from vivace.plan.jobs.layout import check_layout, divisors, nearest
from vivace.plan.models.built_in import named_transformer
from vivace.records.layout import Layout

GPT = named_transformer("gpt-1.3b")


@pytest.mark.parametrize(
    ("layout", "model", "gpus", "batch", "reason", "hint"),
    [
        (Layout(), replace(GPT, heads=15), 8, 8, "15 heads do not divide", "--heads 16"),
        (Layout(), replace(GPT, kv_heads=5), 8, 8, "key-value heads", "--kv-heads 4"),
        (Layout(tensor=3), GPT, 9, 9, "does not divide the 16 attention heads", "--tp 4"),
        (Layout(tensor=16), GPT, 16, 16, "would cross nodes of 8", "--tp 8"),
        (Layout(tensor=4, pipeline=2), GPT, 12, 12, "not a multiple of tensor x pipeline", "--gpus 8"),
        (Layout(pipeline=48), GPT, 48, 48, "more than the 24 layers", "--pp 24"),
        (Layout(), GPT, 8, -4, "global batch is -4", "1"),
        (Layout(), GPT, 0, 8, "GPUs is 0", "1"),
        (
            Layout(micro_batch=4),
            GPT,
            8,
            40,
            "not a multiple of data parallel x micro batch = 32",
            "--global-batch 32",
        ),
        (Layout(shard_size=3, zero=3), GPT, 8, 8, "shard size 3", "--shard-size 4"),
        (Layout(pipeline=4, virtual_stages=2), GPT, 4, 6, "interleaving", "--global-batch 8"),
    ],
)
def test_refusals(layout, model, gpus, batch, reason, hint):
    with pytest.raises(UserError) as caught:
        check_layout(layout, model, gpus, 8, batch)
    assert reason in caught.value.message
    assert hint in caught.value.hint


def test_a_legal_layout_gets_its_data_parallel_size():
    found = check_layout(Layout(tensor=4, pipeline=2), GPT, 64, 8, 64)
    assert (found.data, found.gpus, found.micro_batches(64)) == (8, 64, 8)


def test_nearest_prefers_the_larger_of_two():
    assert nearest(3, [2, 4]) == 4
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
