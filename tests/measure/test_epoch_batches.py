"""A record tells how many batches a whole epoch has, where that is known before its end, and how large they are."""

from __future__ import annotations

from collections.abc import Callable


def test_a_data_set_with_a_length_tells_it(measure: Callable):
    loaders = measure("plain.py", "--steps", "40").record["loaders"]
    assert {(loader["batch_size"], loader["epoch_batches"]) for loader in loaders} == {(32, 40), (16, 4)}
    assert all(loader["default_collate"] for loader in loaders)


def test_a_stream_tells_none_but_the_size_of_its_batches(measure: Callable):
    (loader,) = measure("iterable.py").record["loaders"]
    assert loader["epoch_batches"] is None
    assert loader["batch_mib"] == 20 * (8 * 4 + 8) / 2**20  # floats, and labels of eight bytes
    assert loader["default_collate"] is False  # the dataset makes the batches
