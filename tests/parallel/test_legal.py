"""A layout that cannot run is refused before a process starts, with the nearest that can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.parallel import legal
from vivace.parallel.engine import Engine
from vivace.records.layout import Layout, parse_layout
from vivace.records.transformer import TransformerSizes

SIZES = TransformerSizes(layers=6, hidden=64, heads=8, kv_heads=4)


@given(st.integers(1, 64), st.sampled_from(["dp2", "dp3,tp2", "fs2,pp2", "dp2,fs2,tp2,pp2,cp2", "fs4,zero1"]))
def test_the_nearest_layouts_fill_the_world(world: int, text: str):
    found = legal.nearest_layouts(parse_layout(text), world)
    assert found
    assert all(each.gpus == world for each in found)


def test_sizes_that_do_not_multiply_to_the_world_get_the_nearest_that_do():
    with pytest.raises(UserError) as caught:
        legal.check_world(parse_layout("dp3,tp2"), 8)
    assert "needs 6 processes, and there are 8" in caught.value.message
    assert caught.value.hint == "--layout dp4,tp2 or dp2,tp4"
    legal.check_world(parse_layout("dp4,tp2"), 8)


@pytest.mark.parametrize(
    ("text", "batch", "reason", "hint"),
    [
        ("dp4", 6, "not a multiple of data ranks x micro-batch = 4", "global_batch=8"),
        ("dp2,mb3", 8, "= 6", "global_batch=6"),
        ("pp4", 2, "micro-batches at least 4", "global_batch=4"),
        ("pp2,v2", 3, "in multiples of 2", "global_batch=4"),
    ],
)
def test_batches_that_do_not_divide(text: str, batch: int, reason: str, hint: str):
    with pytest.raises(UserError) as caught:
        legal.check_batch(parse_layout(text), batch)
    assert reason in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "sizes", "seq_len", "reason"),
    [
        ("tp3", {}, 64, "does not divide the 8 attention heads"),
        ("tp8", {}, 64, "does not divide the 4 key-value heads"),
        ("pp8", {}, 64, "more than the 6 layers"),
        ("pp2,v2,1f1b", {}, 64, "one stage per rank"),
        ("pp2,zbv", {}, 64, "two stages per rank"),
        ("cp4", {}, 60, "multiples of 8 tokens"),
        ("tp4", {}, 30, "unequal parts"),
        ("dp1", {"positions": "alibi"}, 64, "no ALiBi"),
        ("dp1", {"window": 8}, 64, "no sliding windows"),
        ("dp1", {"heads": 5, "kv_heads": 5}, 64, "do not divide the hidden size"),
    ],
)
def test_models_that_do_not_divide(text: str, sizes: dict, seq_len: int, reason: str):
    with pytest.raises(UserError) as caught:
        legal.check_transformer(parse_layout(text), SIZES.model_copy(update=sizes), seq_len)
    assert reason in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "engine", "reason"),
    [
        ("dp2", {"memory_budget": 0.5}, "the compiler keeps"),
        ("dp2", {"offload": True}, "only sharded states"),
        ("fs2", {"find_unused": True}, "DDP's"),
        ("pp2,v2,zbv", {"compile": True}, "no compiled backward"),
        ("fs2,pp2,zb1p", {}, "has freed the weights"),
    ],
)
def test_engines_that_contradict_the_layout(text: str, engine: dict, reason: str):
    with pytest.raises(UserError, match=reason):
        legal.check_engine(parse_layout(text), Engine(**engine))


def test_image_models_are_data_parallel_only():
    with pytest.raises(UserError, match="resnet50 is an image model: it has no tp plan") as caught:
        legal.check_data_parallel(parse_layout("dp2,tp2"), "resnet50")
    assert "dp4" in str(caught.value.hint)
    legal.check_data_parallel(Layout(data=4, zero=3), "resnet50")
