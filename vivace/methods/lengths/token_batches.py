"""Batches of about constant token count: many short samples or few long ones, each with little padding.

    batches = TokenBatches(lengths, tokens=16_384, rank=rank, ranks=ranks)
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=pad)
    for epoch in range(epochs):
        batches.set_epoch(epoch)

Samples of similar length share a batch, and batches of similar length share a step of all ranks, so none waits for
another. The number of samples changes from step to step: divide the sum of the losses by the tokens of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

__all__ = ["TokenBatches"]


class TokenBatches(torch.utils.data.Sampler[list[int]]):
    """A batch sampler: a batch with its padding has at most ``tokens`` tokens.

    All ranks get equally many batches; up to ``ranks`` - 1 of the epoch's batches are left out. ``window``: so many
    samples, drawn at random, are sorted by length together.
    """

    def __init__(
        self, lengths: Sequence[int], tokens: int, seed: int = 0, rank: int = 0, ranks: int = 1, window: int = 10_000
    ) -> None:
        longest = max(lengths)
        if longest > tokens:
            raise ValueError(f"a sample has {longest} tokens, and a batch may have {tokens}: cut it, or allow more")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} is not one of {ranks}")
        self._lengths, self._tokens, self._seed, self._window = lengths, tokens, seed, window
        self._rank, self._ranks, self._epoch = rank, ranks, 0

    def set_epoch(self, epoch: int) -> None:
        """Another order; the same on all ranks."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Of this epoch: the number of batches depends on the order."""
        return len(self._steps())

    def __iter__(self) -> Iterator[list[int]]:
        return (step[self._rank] for step in self._steps())

    def _steps(self) -> list[list[list[int]]]:
        """The batches of all ranks, step by step."""
        draws = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        order = torch.randperm(len(self._lengths), generator=draws).tolist()
        batches = []
        for first in range(0, len(order), self._window):
            batches += self._cut(sorted(order[first : first + self._window], key=self._lengths.__getitem__))
        steps = [batches[at : at + self._ranks] for at in range(0, len(batches) - self._ranks + 1, self._ranks)]
        return [steps[at] for at in torch.randperm(len(steps), generator=draws).tolist()]

    def _cut(self, ordered: list[int]) -> list[list[int]]:
        """Samples in order of length: the last one of a batch is its longest."""
        batches: list[list[int]] = [[]]
        for sample in ordered:
            if (len(batches[-1]) + 1) * self._lengths[sample] > self._tokens:
                batches.append([])
            batches[-1].append(sample)
        return batches
