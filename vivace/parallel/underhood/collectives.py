"""What all ranks do together, made of messages. Every rank must call the same function in the same order.

| | messages a rank sends | bytes a rank sends, for a tensor of B bytes |
|---|---|---|
| ``broadcast`` | at most log2(N), rounded up | B each |
| ``reduce_scatter``, ``all_gather`` | N - 1 | (N - 1)/N B |
| ``all_reduce`` | 2 (N - 1) | 2 (N - 1)/N B |

On a ring every rank sends and receives at the same time, and what a rank sends hardly grows with the number of ranks.
That is why gradients go round a ring (Patarasuk and Yuan, 2009).
"""

from __future__ import annotations

import torch

from vivace.parallel.underhood.wire import Wire

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce_scatter"]


def broadcast(wire: Wire, tensor: torch.Tensor, root: int = 0) -> torch.Tensor:
    """Give everybody the root's values, in place. Who has them passes them on: 1, 2, 4, 8 ranks know."""
    place = (wire.rank - root) % wire.size  # the root is at place 0
    known = 1
    while known < wire.size:
        if place < known and place + known < wire.size:
            wire.send(tensor, to=(place + known + root) % wire.size)
        elif known <= place < 2 * known:
            wire.receive(tensor, source=(place - known + root) % wire.size)
        known *= 2
    return tensor


def reduce_scatter(wire: Wire, parts: list[torch.Tensor]) -> torch.Tensor:
    """Sum each part over the ranks; rank r gets part r. Part r of every rank has the same size.

    In each of N - 1 rounds a rank adds its own part to what came from the left and passes the sum to the right. The sum
    of part r begins at rank r + 1 and arrives, complete, at rank r. ``parts`` are overwritten.
    """
    for round_ in range(wire.size - 1):
        outgoing = parts[(wire.rank - 1 - round_) % wire.size]
        mine = parts[(wire.rank - 2 - round_) % wire.size]
        mine += wire.exchange(outgoing, wire.next, torch.empty_like(mine), wire.previous)
    return parts[wire.rank]


def all_gather(wire: Wire, parts: list[torch.Tensor]) -> None:
    """Rank r brings part r; at the end everybody has all parts, in place. Each part goes once round the ring."""
    for round_ in range(wire.size - 1):
        outgoing = parts[(wire.rank - round_) % wire.size]
        incoming = parts[(wire.rank - 1 - round_) % wire.size]
        wire.exchange(outgoing, wire.next, incoming, wire.previous)


def all_reduce(wire: Wire, tensor: torch.Tensor) -> torch.Tensor:
    """The sum over the ranks, in place, on every rank: each part is summed at one rank, then goes round."""
    parts = list(tensor.view(-1).tensor_split(wire.size))
    reduce_scatter(wire, parts)
    all_gather(wire, parts)
    return tensor
