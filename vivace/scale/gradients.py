"""Gradients are averaged over the ranks when they are first read after a backward pass: the script sees whole ones.

A script that accumulates reads them once for several passes, so they are exchanged once. The exchange begins while the
backward pass runs (``overlap``), and ends when they are read. Hooks on a parameter and reads in the middle of a
backward pass get that parameter's gradient averaged there and then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import ref

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from vivace.measure.inside.patches import in_place_of
from vivace.scale.crossing import mean_over_ranks
from vivace.scale.group import Group
from vivace.scale.overlap import Overlap
from vivace.scale.sharded import Sharded

__all__ = ["Gradients"]

_BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel has it


class Gradients:
    """Knows the parameters by the number under which every rank met them.

    A model that the script drops is collected on each rank at another moment: its parameters keep their numbers.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self._pid = os.getpid()
        self._known: list[Any] = []
        self._number: dict[int, int] = {}  # id of a tensor → its place in ``_known``
        self._averaged: dict[int, tuple[Any, int]] = {}  # parameter → its gradient, and that one's version
        self._waiting = False  # a backward pass has ended, and nobody has read its gradients yet
        self._passes = 0  # backward passes that are running
        self._reading = False
        self.overlap = Overlap(group, self.parameters)

    def add(self, parameters: Iterable[torch.Tensor]) -> None:
        for parameter in parameters:
            if not isinstance(parameter, Sharded) and not self._knows(parameter):
                number = self._number[id(parameter)] = len(self._known)
                self._known.append(ref(parameter))
                self.overlap.watch(number, parameter)

    def forget(self, parameters: Iterable[torch.Tensor]) -> None:
        """Those that are about to be sharded: FSDP2 exchanges their gradients."""
        for parameter in parameters:
            if self._knows(parameter):
                self._known[self._number[id(parameter)]] = _gone

    def _knows(self, tensor: torch.Tensor) -> bool:
        """Not by the number alone: that of a tensor which is gone is given to another."""
        number = self._number.get(id(tensor))
        return number is not None and self._known[number]() is tensor

    def parameters(self) -> list[torch.Tensor | None]:
        """By number, the same on every rank; None for one that is gone here."""
        return [known() for known in self._known]

    def install(self) -> None:
        self._when_read()
        self._after_backward()
        self._in_hooks()
        self._after_grad()
        self._with_optimizers()

    def average(self) -> None:
        """Those that changed on any rank since they were last the same everywhere."""
        self._waiting = False
        parameters = self.parameters()
        if not parameters:
            return
        changed = [each is not None and each.requires_grad and self._has_changed(each) for each in parameters]
        gone = [each is None for each in parameters]
        stale = self.overlap.changed_since_sent(parameters)
        told = torch.tensor([*changed, *gone, *stale, self.overlap.sent], dtype=torch.int32)
        *flags, sent = self.group.largest(told).tolist()
        count = len(parameters)
        changed, gone, stale = (flags[start : start + count] for start in (0, count, 2 * count))
        wanted = [number for number in range(count) if changed[number] and not gone[number]]
        done = self.overlap.take(sent, {number for number in wanted if not stale[number]})
        rest = {number: each for number in wanted if number not in done and (each := parameters[number]) is not None}
        _fill(rest.values())
        # Summed in the buckets in which they are sent early the next time: a number's place in its bucket decides the
        # order of its sum, and a training that is started again would else have other bits.
        for bucket in self.overlap.buckets_of(wanted):
            if all(number in rest for number in bucket):
                self._average([rest.pop(number) for number in bucket])
        self._average(list(rest.values()))
        self._note(each for number in done if (each := parameters[number]) is not None)
        self.overlap.learn(wanted, disturbed=any(stale))

    def _average(self, chosen: list[torch.Tensor]) -> None:
        _fill(chosen)
        for bucket in _buckets(chosen) if self.group.world > 1 else ():
            self._average_bucket(bucket)
        self._note(chosen)

    def _note(self, averaged: Iterable[torch.Tensor]) -> None:
        for parameter in averaged:
            assert parameter.grad is not None
            self._averaged[id(parameter)] = (ref(parameter.grad), parameter.grad._version)

    def _has_changed(self, parameter: torch.Tensor) -> bool:
        gradient = parameter.grad
        if gradient is None:
            return False
        averaged, version = self._averaged.get(id(parameter), (None, 0))
        return averaged is None or averaged() is not gradient or gradient._version != version

    def _average_bucket(self, bucket: list[torch.Tensor]) -> None:
        gradients = [_dense(parameter) for parameter in bucket]
        with torch.no_grad():
            flat = self.group.sum(_flatten_dense_tensors(gradients)).div_(self.group.world)
            for parameter, mean in zip(bucket, _unflatten_dense_tensors(flat, gradients)):
                assert parameter.grad is not None
                if parameter.grad.is_sparse:
                    parameter.grad = mean.to_sparse(parameter.grad.sparse_dim())
                else:
                    parameter.grad.copy_(mean)

    def _after_backward(self) -> None:
        original = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            outermost = not self._passes and os.getpid() == self._pid
            if outermost:
                self.overlap.begin()
            self._passes += 1
            try:
                original(*args, **kwargs)
            finally:
                self._passes -= 1
                if outermost:
                    self.overlap.end()
            self._waiting = True

        torch.autograd.backward = in_place_of(original, backward)

    def _when_read(self) -> None:
        own: Any = torch._C.TensorBase.grad

        def read(tensor: torch.Tensor) -> Any:
            if (self._waiting or self._passes) and not self._reading and os.getpid() == self._pid:
                self._reading = True
                try:
                    self._about_to_be_read(tensor)
                finally:
                    self._reading = False
            return own.__get__(tensor)

        torch.Tensor.grad = property(read, own.__set__, own.__delete__)  # type: ignore[assignment]

    def _about_to_be_read(self, tensor: torch.Tensor) -> None:
        if not self._passes:
            self.average()
        elif self._knows(tensor) and self._has_changed(tensor):
            self._average([tensor])

    def _in_hooks(self) -> None:
        """A hook on a parameter gets its whole gradient. What it returns is the same on every rank, and stays."""
        original = torch.Tensor.register_hook

        def register_hook(tensor: torch.Tensor, hook: Any) -> Any:
            if not tensor.is_leaf:
                return original(tensor, hook)
            return original(tensor, lambda g: hook(mean_over_ranks(g, self.group) if self._knows(tensor) else g))

        torch.Tensor.register_hook = in_place_of(original, register_hook)  # type: ignore[method-assign]

    def _after_grad(self) -> None:
        original = torch.autograd.grad

        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            asked = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)  # model.parameters() gives once
            results = original(outputs, asked, *args, **kwargs)
            return tuple(
                mean_over_ranks(result, self.group) if result is not None and self._knows(tensor) else result
                for tensor, result in zip(asked, results)
            )

        torch.autograd.grad = in_place_of(original, grad)

    def _with_optimizers(self) -> None:
        original = torch.optim.Optimizer.add_param_group

        def add_param_group(optimizer: Any, group: Any) -> None:
            original(optimizer, group)
            self.add(optimizer.param_groups[-1]["params"])

        stand_in: Any = in_place_of(original, add_param_group)
        torch.optim.Optimizer.add_param_group = stand_in  # type: ignore[method-assign]


def _gone() -> None:
    """As a reference to a tensor that is gone."""


def _fill(parameters: Iterable[torch.Tensor]) -> None:
    for parameter in parameters:
        if parameter.grad is None:  # no row of this rank reached it
            parameter.grad = torch.zeros_like(parameter)


def _dense(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    assert gradient is not None
    return gradient.to_dense() if gradient.is_sparse else gradient


def _buckets(parameters: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Of one dtype and device each, and of a size that is worth a message."""
    open_ones: dict[Any, list[torch.Tensor]] = {}
    sizes: dict[Any, int] = {}
    for parameter in parameters:
        assert parameter.grad is not None
        key = (parameter.grad.dtype, parameter.grad.device)
        open_ones.setdefault(key, []).append(parameter)
        sizes[key] = sizes.get(key, 0) + parameter.numel() * parameter.grad.element_size()
        if sizes[key] >= _BUCKET_BYTES:
            yield open_ones.pop(key)
            sizes.pop(key)
    yield from open_ones.values()
