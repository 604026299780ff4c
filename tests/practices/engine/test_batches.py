"""A stand-in for a loader's iterator: same batches, same attributes, in every kind of loop."""

from __future__ import annotations

import subprocess
import sys

import torch

from vivace.practices.engine.batches import Batches, host_tensors, tensors_in


def test_it_gives_what_the_iterator_gives_and_has_its_attributes():
    class Source:
        extra = "kept"

        def __init__(self) -> None:
            self.rest = [1, 2, 3]

        def __len__(self) -> int:
            return 3

        def __next__(self) -> int:
            if not self.rest:
                raise StopIteration
            return self.rest.pop(0)

    batches = Batches(Source(), next)
    assert (len(batches), batches.extra) == (3, "kept")
    assert iter(batches) is batches
    assert list(batches) == [1, 2, 3]


def test_tensors_come_in_the_order_of_the_nesting():
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3).to_sparse()
    nested = {"x": [a, ("text", b)], "y": c, "z": None}
    assert [id(t) for t in tensors_in(nested)] == [id(a), id(b), id(c)]
    assert [id(t) for t in host_tensors(nested)] == [id(a), id(b)]  # a sparse one has no plain memory to copy
    assert nested["x"][0] is a


def test_a_loader_of_unknown_length_can_be_stood_in_for():
    """``bool(iterator)`` asks for a length that such a loader has not."""
    code = """
import torch
from torch.utils.data import DataLoader, IterableDataset
from vivace.practices.engine.batches import Batches
from vivace.practices.engine.change import Change
from vivace.practices.engine.parts import Parts

class Doubled(Change):
    def iterator(self, loader, iterator):
        return Batches(iterator, lambda source: 2 * next(source))

class Same(Change):
    def iterator(self, loader, iterator):
        return iterator

class Stream(IterableDataset):
    def __iter__(self):
        return iter([1, 2, 3])

Parts([Doubled(), Same()]).catch_the_rest()
print([int(batch) for batch in DataLoader(Stream(), 1)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "[2, 4, 6]", done.stderr
