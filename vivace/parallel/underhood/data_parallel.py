"""Data parallelism: the same model on every rank, other samples, gradients averaged.

    model = DataParallel(model, wire)
    model(inputs).mean().backward()
    model.finish()                       # gradients are averaged from here on
    optimizer.step()

Three ideas of ``DistributedDataParallel``, each in a few lines:

1. **Buckets.** A message costs time however short it is, so small gradients travel together.
2. **Overlap.** The backward pass makes the last layer's gradients first. A bucket leaves as soon as its gradients are
   there, while the pass goes on with the layers before.
3. **One order.** The ranks must send the same buckets in the same order, or they add apples to pears. So a bucket waits
   for those before it, also if its gradients are there sooner.

The mean of the ranks' mean gradients is that of the whole batch only if all ranks have equally many samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from vivace.parallel.underhood.collectives import all_reduce, broadcast
from vivace.parallel.underhood.wire import Wire

__all__ = ["DataParallel", "buckets"]


def buckets(parameters: list[nn.Parameter], limit_bytes: int) -> list[list[nn.Parameter]]:
    """Last parameters first, as the backward pass makes their gradients; each bucket up to the limit."""
    found: list[list[nn.Parameter]] = []
    room = 0
    for parameter in reversed(parameters):
        size = parameter.numel() * parameter.element_size()
        if not found or size > room:
            found.append([])
            room = limit_bytes
        found[-1].append(parameter)
        room -= size
    return found


class DataParallel(nn.Module):
    def __init__(self, module: nn.Module, wire: Wire, bucket_bytes: int = 25 * 2**20) -> None:
        super().__init__()
        self.module, self.wire = module, wire
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):  # everybody begins with rank 0's values
                broadcast(wire, tensor)
        self.buckets = buckets([each for each in module.parameters() if each.requires_grad], bucket_bytes)
        self._talker = ThreadPoolExecutor(1)  # one thread: messages leave in the order in which they are handed to it
        self._on_the_way: list[Future[None]] = []
        self._exchanges = True
        self._begin()
        for number, bucket in enumerate(self.buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(self._when_ready(number))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate: backward passes in here send nothing; the first one outside sends the sum."""
        self._exchanges = False
        try:
            yield
        finally:
            self._exchanges = True

    def finish(self) -> None:
        """Wait until all gradients are averaged. Call it between the backward pass and the step."""
        self._send_complete(but_not_before=len(self.buckets))  # also those in which a parameter was not used
        for exchange in self._on_the_way:
            exchange.result()
        self._begin()

    def _begin(self) -> None:
        self._missing = [len(bucket) for bucket in self.buckets]
        self._sent = 0
        self._on_the_way.clear()

    def _when_ready(self, number: int) -> Any:
        def ready(_parameter: torch.Tensor) -> None:
            if self._exchanges:
                self._missing[number] -= 1
                self._send_complete(but_not_before=0)

        return ready

    def _send_complete(self, but_not_before: int) -> None:
        """Hand over the next buckets in order: the complete ones, and all up to the given number."""
        while self._sent < len(self.buckets) and (self._sent < but_not_before or self._missing[self._sent] == 0):
            self._on_the_way.append(self._talker.submit(self._average, self.buckets[self._sent]))
            self._sent += 1

    @torch.no_grad()
    def _average(self, bucket: list[nn.Parameter]) -> None:
        for parameter in bucket:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [each.grad for each in bucket if each.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        all_reduce(self.wire, flat).div_(self.wire.size)
        for gradient, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))
