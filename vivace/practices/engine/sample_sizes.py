"""How large are the samples of a dataset? A forked child looks at them, as a loader's worker would.

Nothing of it stays in the training process: no random number is drawn there and no file is opened.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["SampleSizes", "size_of"]

_SECONDS = 5.0
_MOST_SAMPLES = 50_000
_GRACE_S = 30.0  # for one sample that takes long


def size_of(sample: Any) -> int:
    """Numbers and letters in a sample, whatever its nesting.

    >>> size_of(({"text": "four", "ids": [1, 2, 3]}, 7))
    8
    """
    if isinstance(sample, torch.Tensor):
        return sample.numel()
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, Mapping):
        return sum(map(size_of, sample.values()))
    if isinstance(sample, Sequence):
        return sum(map(size_of, sample))
    return int(getattr(sample, "size", 1) if hasattr(sample, "__array__") else 1)


class SampleSizes:
    """``known``: size by index, of all samples or of those that there was time for, drawn at random."""

    def __init__(self, dataset: Any) -> None:
        self.samples = len(dataset)
        chosen = random.Random(0).sample(range(self.samples), min(self.samples, _MOST_SAMPLES))
        self.known = dict(zip(chosen, _look_from_a_child(dataset, chosen), strict=False))

    @property
    def vary(self) -> bool:
        return len(set(self.known.values())) > 1


def _look_from_a_child(dataset: Any, indices: list[int]) -> list[int]:
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_look, args=(dataset, indices, writer), daemon=True)
    child.start()
    writer.close()
    try:
        sizes: list[int] = reader.recv() if reader.poll(_SECONDS + _GRACE_S) else []
        return sizes
    except EOFError:  # the child died: the dataset cannot be read this way
        return []
    finally:
        child.kill()
        child.join()
        reader.close()


def _look(dataset: Any, indices: list[int], writer: Any) -> None:
    torch.set_num_threads(1)  # threads of the parent do not exist here
    sizes: list[int] = []
    try:
        until = time.monotonic() + _SECONDS
        for index in indices:
            sizes.append(size_of(dataset[index]))
            if time.monotonic() > until:
                break
    finally:
        writer.send(sizes)
        writer.close()
        os._exit(0)  # none of the parent's exit handlers
