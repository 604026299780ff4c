"""Where the rows of the ranks lie in a tensor of the whole batch. Sizes only, but for the three that move rows.

The dimension ``dim`` of the whole tensor holds ``outer × size × inner`` entries: the batch alone (1 × size × 1), each
sample with what was flattened behind it (a batch of texts as one list of words), or behind what came before it (the
same with the time first). A rank has ``outer × mine × inner`` of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from vivace.scale.crossing import cut, put_together
from vivace.scale.group import Group
from vivace.scale.shares import Shares

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    shares: Shares
    dim: int = 0
    outer: int = 1
    inner: int = 1

    @property
    def whole_size(self) -> int:
        return self.outer * self.shares.size * self.inner

    @property
    def part_size(self) -> int:
        return self.outer * self.shares.mine * self.inner

    def at(self, dim: int) -> Layout:
        return replace(self, dim=dim)

    def whole_shape(self, part: Sequence[int]) -> tuple[int, ...]:
        return (*part[: self.dim], self.whole_size, *part[self.dim + 1 :])

    def part_shape(self, whole: Sequence[int]) -> tuple[int, ...]:
        return (*whole[: self.dim], self.part_size, *whole[self.dim + 1 :])

    def viewed(self, whole: Sequence[int], new: Sequence[int]) -> Layout | None:
        """The layout after ``view(new)`` of a tensor of shape ``whole``; None where the batch is torn apart."""
        before = math.prod(whole[: self.dim]) * self.outer
        after = self.inner * math.prod(whole[self.dim + 1 :])
        for dim, size in enumerate(new):
            left, right = math.prod(new[:dim]), math.prod(new[dim + 1 :])
            if not left or not right or before % left or after % right:
                continue
            outer, inner = before // left, after // right
            if outer * self.shares.size * inner == size:
                return Layout(self.shares, dim, outer, inner)
        return None

    def cut(self, whole: torch.Tensor, group: Group) -> torch.Tensor:
        """This rank's rows of it, with their gradient."""
        return self._by_rows(whole, self.shares.size, lambda rows, dim: cut(rows, dim, self._rows, group))

    def gather(self, part: torch.Tensor, group: Group) -> torch.Tensor:
        """The whole of it, on every rank, with its gradient."""
        return self._by_rows(part, self.shares.mine, lambda rows, dim: put_together(rows, dim, self._rows, group))

    def narrow(self, whole: torch.Tensor) -> torch.Tensor:
        """As ``cut``, for values that are only looked at."""
        start, mine = self._rows.start, self._rows.mine
        return self._by_rows(whole, self.shares.size, lambda rows, dim: rows.narrow(dim, start, mine))

    @property
    def _rows(self) -> Shares:
        return replace(self.shares, per_sample=self.inner)

    def _by_rows(
        self, tensor: torch.Tensor, samples: int, change: Callable[[torch.Tensor, int], torch.Tensor]
    ) -> torch.Tensor:
        """``change`` sees the tensor with what comes before the batch in a dimension of its own."""
        if self.outer == 1:
            return change(tensor, self.dim)
        rows = tensor.unflatten(self.dim, (self.outer, samples * self.inner))
        return change(rows, self.dim + 1).flatten(self.dim, self.dim + 1)
