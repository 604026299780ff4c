"""Whether parameters have changed: small samples of their values, kept and compared. Waits for the GPU."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["Watched", "trained_by"]

_TENSORS = 16  # of which values are kept
_VALUES = 4096  # of each tensor
_LARGEST_COPY = 1_000_000  # elements; of a larger tensor that is not contiguous only a part is looked at
_MOST_NODES = 200_000


class _Sample:
    def __init__(self, number: int, tensor: torch.Tensor) -> None:
        self.number = number
        self.tensor = weakref.ref(tensor)
        self.shape = tensor.shape
        self.values = _values_of(tensor)

    def differs(self, tensor: torch.Tensor) -> bool:
        """From now on compared with what it is now."""
        before, self.values = self.values, _values_of(tensor)
        return not torch.equal(before, self.values)


class Watched:
    """Tensors by number. One that takes another's place (``w = w - lr * g``) gets its number."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._last: list[int] = []  # numbers, in the order of the last look

    def look(self, tensors: Sequence[torch.Tensor]) -> set[int]:
        """The numbers of those that changed since the last look. ``tensors``: what the next backward pass trains."""
        chosen = _choose(tensors)
        changed = {one.number for one in self._samples if _is_changed(one)}
        numbers = []
        for place, tensor in enumerate(chosen):
            known = self._find(tensor)
            if known is None:
                known = self._predecessor(place, tensor, chosen)
                if known is not None and known.differs(tensor):
                    changed.add(known.number)
                if known is None:
                    known = _Sample(len(self._samples), tensor)
                    self._samples.append(known)
                known.tensor = weakref.ref(tensor)
            numbers.append(known.number)
        self._last = numbers
        return changed

    def _find(self, tensor: torch.Tensor) -> _Sample | None:
        return next((one for one in self._samples if one.tensor() is tensor), None)

    def _predecessor(self, place: int, tensor: torch.Tensor, now: Sequence[torch.Tensor]) -> _Sample | None:
        """What stood in the same place before, and is trained no more."""
        if place >= len(self._last):
            return None
        before = self._samples[self._last[place]]
        still_there = any(before.tensor() is one for one in now)
        return before if before.shape == tensor.shape and not still_there else None


def _is_changed(sample: _Sample) -> bool:
    tensor = sample.tensor()
    return tensor is not None and sample.differs(tensor)


def _choose(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Spread over the model, in its order. Wrappers and shards are left out: their values are elsewhere."""
    plain = [t for t in tensors if type(t) in (torch.Tensor, torch.nn.Parameter) and t.numel()]
    step = max(1, len(plain) / _TENSORS)
    return [plain[int(i * step)] for i in range(min(_TENSORS, len(plain)))]


def _values_of(tensor: torch.Tensor) -> torch.Tensor:
    """As bytes: not a number is then equal to itself."""
    part = tensor.detach()
    while not part.is_contiguous() and part.numel() > _LARGEST_COPY:
        part = part[0]
    flat = part.reshape(-1)
    return flat[:: max(1, flat.numel() // _VALUES)][:_VALUES].clone().view(torch.uint8)


def trained_by(outputs: Any, inputs: Any = None) -> list[torch.Tensor]:
    """The tensors that a backward pass from ``outputs`` gives gradients to, or the ``inputs`` that were asked for."""
    if inputs is not None:
        return [inputs] if isinstance(inputs, torch.Tensor) else [t for t in inputs if isinstance(t, torch.Tensor)]
    roots = [outputs] if isinstance(outputs, torch.Tensor) else [o for o in outputs if isinstance(o, torch.Tensor)]
    return list(_leaves([root.grad_fn for root in roots if root.grad_fn is not None]))


def _leaves(nodes: list[Any]) -> Iterator[torch.Tensor]:
    seen: set[Any] = set()
    while nodes and len(seen) < _MOST_NODES:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            yield leaf
        nodes += [following for following, _ in node.next_functions]
