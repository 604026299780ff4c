"""Differential runs: the job once more with one cost taken away, to tell causes apart. They are no practices.

``probe:same_batch`` repeats the first batch (no loading), ``probe:double_batch`` repeats it at twice the size (is the
GPU or the host the limit?), ``probe:no_gradient_sync`` leaves the gradients of ranks apart (no communication).
``probe:longest_first`` is the finder's (``longest.py``). ``probe:nothing`` changes nothing: a job "tuned" with it must
come out as fast as it is (``benchmarks/aa.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from vivace.practices.engine.change import Change
from vivace.practices.engine.longest import LongestFirst
from vivace.practices.engine.tensors import map_tensors

__all__ = ["PROBES"]

_MANY = 1_000_000  # batches of a loader that does not know its length


class SameBatch(Change):
    def iterator(self, loader: Any, iterator: Any) -> Any:
        self.applied("every batch is the first one")
        return self._repeat(loader, iterator)

    def _repeat(self, loader: Any, iterator: Any) -> Iterator[Any]:
        try:
            times = len(loader)
        except TypeError:
            times = _MANY
        first = loader.__dict__.get("_vivace_first")
        if first is None:
            first = self.changed(next(iterator))
            loader.__dict__["_vivace_first"] = first
        for _ in range(times):
            yield first

    def changed(self, batch: Any) -> Any:
        return batch


class DoubleBatch(SameBatch):
    def changed(self, batch: Any) -> Any:
        return map_tensors(batch, lambda t: torch.cat([t, t]) if t.dim() else t)


class NoGradientSync(Change):
    def forward(self, root: torch.nn.Module) -> AbstractContextManager[Any] | None:
        if isinstance(root, torch.nn.parallel.DistributedDataParallel):
            root.require_backward_grad_sync = False
            self.applied("gradients stay on their ranks")
        return None


class Nothing(Change):
    def flags(self) -> None:
        self.applied("nothing is changed")


PROBES: dict[str, type[Change]] = {
    "probe:same_batch": SameBatch,
    "probe:double_batch": DoubleBatch,
    "probe:no_gradient_sync": NoGradientSync,
    "probe:longest_first": LongestFirst,
    "probe:nothing": Nothing,
}
