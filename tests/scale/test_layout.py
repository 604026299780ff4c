"""Views of a rank's rows are the rank's rows of the view."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from vivace.scale.layout import Layout
from vivace.scale.shares import Shares


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, Layout]:
    """A tensor of the whole batch, each entry another number, and where one rank's rows lie in it."""
    world = draw(st.integers(2, 4))
    shares = Shares(draw(st.integers(world, 9)), draw(st.integers(0, world - 1)), world)
    before, after = draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.lists(st.integers(1, 3), max_size=2))
    layout = Layout(shares, len(before), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    shape = (*before, layout.whole_size, *after)
    return torch.arange(math.prod(shape)).view(shape), layout


@given(batches(), st.data())
def test_a_view_of_the_part_is_the_part_of_the_view(batch: tuple[torch.Tensor, Layout], data: st.DataObject):
    whole, layout = batch
    sizes = [size for size in range(1, whole.numel() + 1) if whole.numel() % size == 0]
    first = data.draw(st.sampled_from(sizes))
    second = data.draw(st.sampled_from([size for size in sizes if (whole.numel() // first) % size == 0]))
    new = (first, second, whole.numel() // first // second)
    found = layout.viewed(whole.shape, new)
    if found is not None:
        part = layout.narrow(whole)
        assert part.shape == layout.part_shape(whole.shape)
        assert torch.equal(part.reshape(found.part_shape(new)), found.narrow(whole.view(new)))


@given(batches())
def test_flattening_keeps_the_batch_in_one_piece(batch: tuple[torch.Tensor, Layout]):
    whole, layout = batch
    found = layout.viewed(whole.shape, (whole.numel(),))
    assert found is not None
    assert torch.equal(layout.narrow(whole).flatten(), found.narrow(whole.flatten()))
    again = found.viewed((whole.numel(),), whole.shape)
    assert again is not None
    assert again.part_shape(whole.shape) == layout.part_shape(whole.shape)


def test_a_view_that_tears_samples_apart_has_no_layout():
    assert Layout(Shares(6, 0, 2)).viewed((6, 4), (4, 6)) is None
    assert Layout(Shares(6, 0, 2)).viewed((6, 4), (3, 8)) is None
    assert Layout(Shares(6, 0, 2)).viewed((6, 4), (24,)) == Layout(Shares(6, 0, 2), 0, 1, 4)
    assert Layout(Shares(6, 0, 2), 1).viewed((5, 6, 4), (30, 4)) == Layout(Shares(6, 0, 2), 0, 5, 1)
