"""A record tells how many batches a whole epoch has, where that is known before its end."""

from __future__ import annotations

from collections.abc import Callable


def test_a_data_set_with_a_length_tells_it(measure: Callable):
    loaders = measure("plain.py", "--steps", "40").record["loaders"]
    assert {(loader["batch_size"], loader["epoch_batches"]) for loader in loaders} == {(32, 40), (16, 4)}


def test_a_stream_tells_none(measure: Callable):
    assert [loader["epoch_batches"] for loader in measure("iterable.py").record["loaders"]] == [None]
