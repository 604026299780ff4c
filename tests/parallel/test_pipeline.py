"""How blocks and stages are dealt out: every block in one stage, every stage on one rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vivace.parallel.pipeline import blocks_of_stages, stages_of_rank
from vivace.records.layout import Layout


@given(st.integers(1, 100), st.integers(1, 32))
def test_every_block_is_in_one_stage_and_no_stage_is_empty(layers: int, stages: int):
    stages = min(stages, layers)
    shares = blocks_of_stages(layers, stages)
    assert [block for share in shares for block in share] == list(range(layers))
    assert all(len(share) for share in shares)
    assert max(map(len, shares)) - min(map(len, shares)) <= 2


def test_embedding_and_output_count_where_layers_do_not_divide():
    assert [len(share) for share in blocks_of_stages(70, 12)] == [5, *[6] * 10, 5]  # BLOOM
    assert [len(share) for share in blocks_of_stages(8, 4)] == [2, 2, 2, 2]


@given(st.integers(1, 8), st.integers(1, 4), st.sampled_from(["interleaved", "zb1p", "zbv"]))
def test_every_stage_is_on_one_rank(pipeline: int, virtual: int, schedule: str):
    virtual = 2 if schedule == "zbv" else virtual
    layout = Layout(pipeline=pipeline, virtual_stages=virtual, schedule=schedule)  # type: ignore[arg-type]
    found = [stage for rank in range(pipeline) for stage in stages_of_rank(layout, rank)]
    assert sorted(found) == list(range(layout.stages))
