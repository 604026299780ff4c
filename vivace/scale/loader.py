"""Each rank loads its own samples of a batch, where that gives the batches of one process.

That is so for a dataset that is asked by index, with torch's own collation, whose samples are the same whenever they
are asked for. The first batch of each loading process is loaded whole, to see whether the dataset draws random
numbers; if it does, every rank loads all. A dataset that starts to draw later ends the training with a sentence.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.data import DataLoader, _utils
from torch.utils.data._utils.collate import default_collate
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from vivace.measure.inside.patches import in_place_of
from vivace.scale.errors import ScaleError
from vivace.scale.group import Group
from vivace.scale.layout import Layout
from vivace.scale.rows import Rows
from vivace.scale.same_batches import SameBatches
from vivace.scale.shares import Shares

__all__ = ["OwnPart", "OwnRows", "keeps_a_generator"]

_DEPTH = 4  # how deep a dataset is searched for generators of its own


@dataclass
class OwnPart:
    """What a loading process hands to the training process: this rank's rows of a batch of ``size``."""

    data: Any
    size: int
    asked: int
    """Stands for the samples of the whole batch."""
    drew: bool = False

    def pin_memory(self, device: Any = None) -> OwnPart:
        pin: Any = _utils.pin_memory.pin_memory
        return OwnPart(pin(self.data, device), self.size, self.asked, self.drew)


class OwnRows:
    def __init__(self, group: Group, batches: SameBatches, tell: Callable[[], None]) -> None:
        self.group, self.batches, self.tell = group, batches, tell
        self.are_cut = False  # a batch of which each rank has its rows was handed to the script
        self.whole: dict[str, str] = {}
        """Name of a dataset → why every rank loads all of it."""

    def install(self) -> None:
        fetcher = _utils.fetch._MapDatasetFetcher
        fetcher.fetch = self._fetching(fetcher.fetch)  # type: ignore[method-assign]
        for iterator in (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter):
            iterator._next_data = self._handing_over(iterator._next_data)  # type: ignore[method-assign]
        self._watch_loaders()

    def _watch_loaders(self) -> None:
        """What can be said of a loader before it loads."""
        original = DataLoader.__iter__

        def start(loader: Any) -> Any:
            reason = _reason_for_whole(loader)
            if reason is not None:
                self.whole.setdefault(type(loader.dataset).__name__, reason)
                self.tell()
            return original(loader)

        DataLoader.__iter__ = in_place_of(original, start)  # type: ignore[method-assign]

    # -- in the loading process --------------------------------------------------------------------------------------

    def _fetching(self, original: Any) -> Any:
        rank, world = self.group.rank, self.group.world

        def fetch(fetcher: Any, asked: Any) -> Any:
            state = fetcher.__dict__.setdefault("_vivace_own", _may_be_cut(fetcher))
            if not state or not isinstance(asked, list) or len(asked) < world:
                return original(fetcher, asked)
            before = _chance()
            if state == "first":
                whole = original(fetcher, asked)
                fetcher._vivace_own = "own" if before == _chance() and _same_again(fetcher, asked, whole) else ""
                return whole
            shares = Shares(len(asked), rank, world)
            data = original(fetcher, asked[shares.start : shares.start + shares.mine])
            return OwnPart(data, len(asked), zlib.crc32(repr(asked).encode()), drew=before != _chance())

        return in_place_of(original, fetch)

    # -- in the training process -------------------------------------------------------------------------------------

    def _handing_over(self, original: Any) -> Any:
        def next_data(iterator: Any) -> Any:
            return self._as_the_script_sees_it(original(iterator))

        return in_place_of(original, next_data)

    def _as_the_script_sees_it(self, batch: Any) -> Any:
        if not isinstance(batch, OwnPart):
            return batch
        if batch.drew:
            raise ScaleError(
                "the dataset draws random numbers for some of its samples only: "
                "give its loader a collate_fn, then every rank loads whole batches"
            )
        self.batches.of_loader(batch.asked)
        if not self.are_cut:
            self.are_cut = True
            self.tell()
        layout = Layout(Shares(batch.size, self.group.rank, self.group.world))
        return tree_map(lambda leaf: Rows.of(leaf, layout, self.group), batch.data)


def _reason_for_whole(loader: Any) -> str | None:
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return "it is iterable"
    if loader.collate_fn is not default_collate:
        return "its loader has a collate_fn of its own"
    if keeps_a_generator(loader.dataset):
        return "it keeps a random generator of its own"
    return None


def _may_be_cut(fetcher: Any) -> str:
    """ "first": the next batch shows it; empty: no."""
    usual = fetcher.auto_collation and fetcher.collate_fn is default_collate
    return "first" if usual and not keeps_a_generator(fetcher.dataset) else ""


def _same_again(fetcher: Any, asked: list[Any], whole: Any) -> bool:
    """Whether the batch is made of tensors with a row for each sample, and a sample is the same when asked again."""
    leaves = tree_flatten(whole)[0]
    if not leaves or not all(_has_rows(leaf, len(asked)) for leaf in leaves):
        return False
    again = tree_flatten(fetcher.collate_fn([fetcher.dataset[asked[-1]]]))[0]
    return len(again) == len(leaves) and all(_equal(leaf[-1:], one) for leaf, one in zip(leaves, again))


def _has_rows(leaf: Any, count: int) -> bool:
    return type(leaf) is torch.Tensor and leaf.dim() > 0 and leaf.size(0) == count


def _equal(first: torch.Tensor, second: Any) -> bool:
    if not isinstance(second, torch.Tensor) or first.shape != second.shape or first.dtype != second.dtype:
        return False
    return bool(torch.equal(first, second)) or bool(((first == second) | ((first != first) & (second != second))).all())


def _chance() -> Any:
    """The state of the global generators, to be compared."""
    numpy = sys.modules.get("numpy")
    drawn = None
    if numpy is not None:
        _, key, position, *rest = numpy.random.get_state()
        drawn = (key.tobytes(), position, *rest)
    return bytes(torch.get_rng_state().numpy()), random.getstate(), drawn


def keeps_a_generator(value: Any, depth: int = _DEPTH) -> bool:
    """Whether it, or what it is made of, holds a random generator: its draws go on from sample to sample."""
    if isinstance(value, (random.Random, torch.Generator)) or type(value).__module__.startswith("numpy.random"):
        return True
    if depth == 0 or isinstance(value, (str, bytes, int, float, torch.Tensor, type)):
        return False
    if isinstance(value, Mapping):
        inside: Any = list(value.values())[:100]
    elif isinstance(value, (list, tuple, set)):
        inside = list(value)[:100]
    else:
        inside = list(getattr(value, "__dict__", {}).values())
    return any(keeps_a_generator(each, depth - 1) for each in inside)
