"""A layout goes to text and JSON and back, and wrong text is refused with a hint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.records.layout import Layout, parse_layout
from vivace.records.plan import PlanAlternative

SIZES = st.sampled_from([1, 2, 3, 4, 8])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    replicas, shard, zero = draw(SIZES), draw(SIZES), draw(st.integers(0, 3))
    shard = shard if zero else 1
    return Layout(
        data=replicas * shard,
        tensor=draw(SIZES),
        pipeline=draw(SIZES),
        context=draw(SIZES),
        virtual_stages=draw(SIZES),
        sequence_parallel=draw(st.booleans()),
        zero=zero,
        shard_size=shard if zero and replicas > 1 else 0,
        micro_batch=draw(SIZES),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        schedule=draw(st.sampled_from(["1f1b", "interleaved", "gpipe", "zb1p", "zbv"])),
    )


@given(layouts())
def test_text_and_json_give_the_layout_back(layout: Layout):
    assert parse_layout(str(layout)) == layout
    assert Layout.from_json(layout.to_json()) == layout


@given(layouts())
def test_replicas_and_shards_make_up_the_data_ranks(layout: Layout):
    assert layout.replicas * layout.shard == layout.data
    assert layout.gpus == layout.replicas * layout.shard * layout.tensor * layout.pipeline * layout.context


def test_the_words_of_a_layout():
    found = parse_layout("dp2, fs2,tp2,pp2,cp1")
    assert (found.data, found.zero, found.shard_size, found.replicas, found.shard) == (4, 3, 2, 2, 2)
    assert (found.tensor, found.pipeline, found.context, found.gpus) == (2, 2, 1, 16)
    assert found.sequence_parallel
    assert parse_layout("dp4,zero1") == parse_layout("fs4,zero1") == Layout(data=4, zero=1)
    assert parse_layout("pp2,v2").schedule == "interleaved"
    assert parse_layout("") == Layout()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dp2,xp2", "not known: xp2"),
        ("dp2,dp4", "says dp twice"),
        ("tp0", "has tp0"),
        ("fs2,zero4", "ZeRO stage 4"),
        ("fs2,zero0", "ZeRO stage 0"),
        ("pp2,gpipe,zbv", "contradicts itself"),
        ("dp2x", "not known: dp2x"),
        ("dp9999999", "not known"),
    ],
)
def test_wrong_text_is_refused_with_a_hint(text: str, reason: str):
    with pytest.raises(UserError) as caught:
        parse_layout(text)
    assert reason in caught.value.message
    assert caught.value.hint


def test_wrong_json_is_refused():
    with pytest.raises(UserError, match="not a layout: colour"):
        Layout.from_json('{"colour": 3}')


def test_plans_of_schema_1_hold_micro_batches():
    fields = {"layout": {"data": 4, "micro_batches": 8}, "step_ms": 1.0, "memory_gib": 1.0, "why": "x"}
    assert PlanAlternative.model_validate(fields).layout == Layout(data=4)
