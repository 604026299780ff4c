"""Gradients that are exchanged while the backward pass still runs.

``gradients`` averages what has changed when the script first reads it. Here the sums are begun earlier. The first time
that a set of parameters is averaged, the order in which their gradients came is learned; rank 0's order is everyone's,
cut into buckets. When the same pass is expected again, each bucket is sent as soon as its gradients are there: bucket
after bucket, so that all ranks send in the same order, whatever a rank's own order is. Sums have a group of their own,
so they need no order with the other collectives of a backward pass (batch norm, cut inputs).

Gradients themselves are not touched before they are read. What was expected and did not come, or came and changed again
after it was sent, is averaged when it is read, as without this file. The decisions rest on what all ranks know.

A script that accumulates reads once for several passes: only in the last of them, as it was the time before, is
something sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from vivace.scale.group import Group

__all__ = ["Overlap", "bucket_numbers"]

_BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel has it
_FIRST_BUCKET_BYTES = 2**20  # the same: the exchange begins early
_MOST_KINDS = 16  # of sets of parameters: a script with more has no pattern to learn

_own_grad: Any = torch._C.TensorBase.grad  # ``Tensor.grad`` is replaced by a property that averages

Kind = tuple[int, tuple[int, ...]]
"""What a read averaged: the backward passes before it, and the numbers of the parameters that had changed."""


@dataclass(frozen=True)
class _Plan:
    passes: int
    buckets: tuple[tuple[int, ...], ...]
    bucket_of: dict[int, int] = field(default_factory=dict)


@dataclass
class _Sent:
    """One bucket on its way: the sum, and the gradients that it was made of as they were then."""

    flat: torch.Tensor
    work: Any
    versions: dict[int, tuple[int, int]]  # parameter → id of its gradient, and that one's version


class Overlap:
    def __init__(self, group: Group, parameters: Callable[[], list[torch.Tensor | None]]) -> None:
        self.group, self.parameters = group, parameters
        self.wanted = group.world > 1 and os.environ.get("VIVACE_SCALE_OVERLAP", "1") != "0"
        self.sent_early = 0  # buckets that were sent before their backward pass had ended
        self._pid = os.getpid()
        self._lock = threading.Lock()  # gradients of two devices come in two threads
        self._order: list[int] = []  # in which gradients came in the latest pass
        self._passes = 0  # since the last read
        self._running = False  # a pass in which buckets are sent as they fill
        self._plan: _Plan | None = None  # of the passes that are expected
        self._missing: list[set[int]] = []
        self._sent: list[_Sent] = []
        self._plans: dict[Kind, _Plan] = {}
        self._next: dict[Kind, Kind] = {}  # what came after a kind the last time
        self._kind: Kind | None = None
        self._sizes: dict[int, tuple[int, torch.dtype, torch.device]] = {}

    # -- during a backward pass --------------------------------------------------------------------------------------

    def watch(self, number: int, parameter: torch.Tensor) -> None:
        """Be told when its gradient is there. One that is frozen now, or lies on several ranks, is averaged as read."""
        if self.wanted and parameter.is_leaf and parameter.requires_grad and not hasattr(parameter, "placements"):
            parameter.register_post_accumulate_grad_hook(lambda _: self._came(number))

    def begin(self) -> None:
        """An outermost backward pass begins."""
        if self._plan is not None and self._passes == self._plan.passes:
            self._drop()
        self._passes += 1
        self._order = []
        plan = self._plan
        self._running = plan is not None and self._passes == plan.passes
        if plan is not None and self._running:
            self._missing = [set(bucket) for bucket in plan.buckets]

    def _drop(self) -> None:
        """Nobody has read what was sent, and this pass adds to it: the script accumulates more than was expected."""
        plan, self._plan = self._plan, None
        assert plan is not None
        sent = int(self.group.largest(torch.tensor([len(self._sent)], dtype=torch.int32)).item())
        self._send_up_to(sent, plan)
        for on_its_way in self._sent:
            on_its_way.work.wait()
        self._sent = []

    def end(self) -> None:
        self._running = False

    def _came(self, number: int) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._order.append(number)
            plan = self._plan
            if not self._running or plan is None or number not in plan.bucket_of:
                return
            self._missing[plan.bucket_of[number]].discard(number)
            while len(self._sent) < len(plan.buckets) and not self._missing[len(self._sent)]:
                self._send(plan.buckets[len(self._sent)], self.parameters())
                self.sent_early += 1

    def _send_up_to(self, count: int, plan: _Plan) -> None:
        """Another rank has sent so many."""
        while len(self._sent) < count:
            self._send(plan.buckets[len(self._sent)], self.parameters())

    def _send(self, bucket: Sequence[int], parameters: Sequence[torch.Tensor | None]) -> None:
        parts, versions = [], {}
        with torch.no_grad():
            for number in bucket:
                parameter = parameters[number]
                gradient = None if parameter is None else _own_grad.__get__(parameter)
                if gradient is not None and _is_plain(gradient) and gradient.dtype is self._sizes[number][1]:
                    versions[number] = (id(gradient), gradient._version)
                    parts.append(gradient.reshape(-1))
                else:
                    size, dtype, device = self._sizes[number]  # no row of this rank reached it, or it is gone here
                    parts.append(torch.zeros(size, dtype=dtype, device=device))
            flat = torch.cat(parts)
        self._sent.append(_Sent(flat, self.group.start_sum(flat), versions))

    # -- when gradients are read -------------------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        """Buckets that this rank has sent, and whose means nobody has taken yet."""
        return len(self._sent)

    def changed_since_sent(self, parameters: Sequence[torch.Tensor | None]) -> list[bool]:
        """Of each parameter, whether this rank's gradient is no longer what was sent."""
        changed = [False] * len(parameters)
        for on_its_way, bucket in zip(self._sent, self._plan.buckets if self._plan is not None else ()):
            for number in bucket:
                parameter = parameters[number]
                gradient = None if parameter is None else _own_grad.__get__(parameter)
                now = None if gradient is None else (id(gradient), gradient._version)
                changed[number] = now != on_its_way.versions.get(number)
        return changed

    def take(self, sent: int, usable: set[int]) -> set[int]:
        """Put the means of ``usable`` in place, as far as they were sent; the numbers of those. ``sent``: buckets that
        some rank has sent."""
        plan: _Plan | None = self._plan
        done: set[int] = set()
        if plan is None or not sent:
            return done
        parameters = self.parameters()
        self._send_up_to(sent, plan)
        for bucket, on_its_way in zip(plan.buckets, self._sent):
            on_its_way.work.wait()
            with torch.no_grad():
                mean, start = on_its_way.flat.div_(self.group.world), 0
                for number in bucket:
                    parameter = parameters[number]
                    size = self._sizes[number][0]
                    if parameter is not None and number in usable:
                        _put(parameter, mean[start : start + size])
                        done.add(number)
                    start += size
        self._sent = []
        return done

    def buckets_of(self, changed: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """In which they are sent early once that has been learned; none where there is nothing to learn."""
        kind = (self._passes, tuple(changed))
        if kind not in self._plans and self.wanted and changed and len(self._plans) < _MOST_KINDS:
            self._plans[kind] = self._planned(kind)
        plan = self._plans.get(kind)
        return () if plan is None else plan.buckets

    def learn(self, changed: Sequence[int], disturbed: bool) -> None:
        """After a read and ``buckets_of``, with what all ranks know. ``disturbed``: some changed after they went."""
        kind = (self._passes, tuple(changed))
        self._passes, self._plan = 0, None
        if not self.wanted or not changed:
            return
        if disturbed or kind not in self._plans:  # too many kinds; the buckets that are known stay as they are
            self.wanted = False
            return
        if self._kind is not None:
            self._next[self._kind] = kind
        self._kind = kind
        expected = self._next.get(kind)
        self._plan = None if expected is None else self._plans[expected]

    def _planned(self, kind: Kind) -> _Plan:
        """All ranks agree on rank 0's order of the last pass."""
        parameters, wanted = self.parameters(), set(kind[1])
        mine = [number for number in dict.fromkeys(self._order) if number in wanted and _may_go(parameters[number])]
        told = torch.full((len(parameters),), -1, dtype=torch.int64)
        told[: len(mine)] = torch.tensor(mine, dtype=torch.int64)
        order = [number for number in self.group.from_rank(0, told).tolist() if number >= 0]
        known = torch.tensor([_may_go(parameters[number]) for number in order], dtype=torch.uint8)
        everywhere = (1 - self.group.largest(1 - known)).tolist() if order else []
        order = [number for number, yes in zip(order, everywhere) if yes]
        for number in order:
            parameter = parameters[number]
            assert parameter is not None
            self._sizes[number] = (parameter.numel(), parameter.dtype, parameter.device)
        buckets = bucket_numbers(order, lambda number: self._sizes[number])
        self._make_ready(buckets)
        places = {number: place for place, bucket in enumerate(buckets) for number in bucket}
        return _Plan(kind[0], buckets, places)

    def _make_ready(self, buckets: Sequence[Sequence[int]]) -> None:
        """Ranks meet here to connect: in a backward pass one could wait for another that waits for it elsewhere."""
        for device in dict.fromkeys(self._sizes[bucket[0]][2] for bucket in buckets):
            self.group.start_sum(torch.zeros(1, device=device)).wait()


def bucket_numbers(
    order: Sequence[int], size_of: Callable[[int], tuple[int, torch.dtype, torch.device]]
) -> tuple[tuple[int, ...], ...]:
    """Neighbours in ``order`` of one dtype and device, in the order in which the buckets fill."""
    full: list[tuple[int, ...]] = []
    open_ones: dict[Any, list[int]] = {}
    held: dict[Any, int] = {}
    for number in order:
        size, dtype, device = size_of(number)
        key = (dtype, device)
        open_ones.setdefault(key, []).append(number)
        held[key] = held.get(key, 0) + size * dtype.itemsize
        if held[key] >= (_BUCKET_BYTES if full else _FIRST_BUCKET_BYTES):
            full.append(tuple(open_ones.pop(key)))
            held.pop(key)
    return (*full, *map(tuple, open_ones.values()))


def _is_plain(gradient: torch.Tensor) -> bool:
    return gradient.layout is torch.strided and not hasattr(gradient, "placements")


def _may_go(parameter: torch.Tensor | None) -> bool:
    """A dense gradient of the parameter's own kind."""
    gradient = None if parameter is None else _own_grad.__get__(parameter)
    return gradient is not None and _is_plain(gradient) and gradient.dtype is parameter.dtype  # type: ignore[union-attr]


def _put(parameter: torch.Tensor, mean: torch.Tensor) -> None:
    gradient = _own_grad.__get__(parameter)
    if gradient is None:
        gradient = torch.zeros_like(parameter)
        _own_grad.__set__(parameter, gradient)
    gradient.copy_(mean.view(gradient.shape))
