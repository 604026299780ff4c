"""Sequence packing: several short samples in one row, without padding between them.

    rows = fill_rows(lengths, row=2048)                  # once: which samples share a row
    packed = pack([samples[i] for i in rows[0]], row=2048)
    # tokens, positions and documents: one row for the model; mask(): who may look at whom

Positions begin again with each sample, and no token looks at another sample, so a row computes what its samples would
compute alone (Krell et al. 2021, arXiv 2107.02027). Rows are filled by the rule "longest first, into the fullest row
that has room".
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

import torch

__all__ = ["Packed", "fill_rows", "pack"]

NOTHING = -1
"""The document of padding at the end of a row."""


class Packed(NamedTuple):
    """One row. ``documents`` numbers the samples from 0 on; padding has ``NOTHING``."""

    tokens: torch.Tensor
    positions: torch.Tensor
    documents: torch.Tensor

    def mask(self, causal: bool = True) -> torch.Tensor:
        """(row, row), True where a token may look, for ``scaled_dot_product_attention``. Padding looks at itself."""
        allowed = self.documents[:, None] == self.documents[None, :]
        return allowed.tril() if causal else allowed

    def next_tokens(self, ignored: int = -100) -> torch.Tensor:
        """Targets of a language model: the next token of the same sample, else ``ignored``."""
        targets = torch.full_like(self.tokens, ignored)
        follows = (self.documents[1:] == self.documents[:-1]) & (self.documents[1:] != NOTHING)
        targets[:-1][follows] = self.tokens[1:][follows]
        return targets


def fill_rows(lengths: Sequence[int], row: int) -> list[list[int]]:
    """Which samples share a row of ``row`` tokens: every sample once, in few rows."""
    longest = max(lengths, default=0)
    if longest > row:
        raise ValueError(f"a sample has {longest} tokens, and a row has room for {row}: cut it, or make rows longer")
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # room left and number of each row, the fullest first
    for sample in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        at = bisect_left(rooms, (lengths[sample], 0))
        if at < len(rooms):
            room, number = rooms.pop(at)
        else:
            room, number = row, len(rows)
            rows.append([])
        rows[number].append(sample)
        insort(rooms, (room - lengths[sample], number))
    return rows


def pack(samples: Sequence[torch.Tensor], row: int, padding: int = 0) -> Packed:
    """The samples one after another in a row; ``padding`` is the token that fills it."""
    used = sum(len(sample) for sample in samples)
    if used > row:
        raise ValueError(f"the samples have {used} tokens, and a row has room for {row}: see fill_rows")
    rest = row - used
    tokens = [*samples, torch.full((rest,), padding, dtype=torch.long)]
    positions = [torch.arange(len(part)) for part in tokens]
    numbers = [*range(len(samples)), NOTHING]
    documents = [torch.full((len(part),), number) for part, number in zip(tokens, numbers)]
    return Packed(torch.cat(tokens), torch.cat(positions), torch.cat(documents))
