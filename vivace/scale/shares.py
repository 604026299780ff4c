"""Who gets which rows of a batch: as even as it goes, the first ranks one more. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Shares"]


@dataclass(frozen=True)
class Shares:
    """A batch of ``size`` rows over ``world`` ranks, as rank ``rank`` sees it."""

    size: int
    rank: int
    world: int
    per_sample: int = 1
    """Rows of a tensor for each sample: one of shape (batch × length, width) has ``length``."""

    @property
    def sizes(self) -> list[int]:
        """
        >>> Shares(10, 0, 4).sizes
        [3, 3, 2, 2]
        """
        least, more = divmod(self.size, self.world)
        return [self.per_sample * (least + (rank < more)) for rank in range(self.world)]

    @property
    def start(self) -> int:
        return sum(self.sizes[: self.rank])

    @property
    def mine(self) -> int:
        return self.sizes[self.rank]

    @property
    def most(self) -> int:
        return self.sizes[0]

    @property
    def can_be_split(self) -> bool:
        """Every rank has a row: many layers refuse an empty batch."""
        return self.size >= self.world
