"""ZeRO: N ranks with N copies of everything waste memory. Each rank keeps 1/N of it, in three stages.

With Adam in fp32 a parameter costs 4 bytes for itself, 4 for its gradient and 8 for the optimizer (Rajbhandari et al.,
2020). Ψ parameters on N ranks:

| stage | what is cut | bytes a rank keeps | a rank sends in a step |
|---|---|---|---|
| – | nothing: data parallelism | 16 Ψ | 2 Ψ |
| 1 | optimizer states | 8 Ψ + 8 Ψ/N | 2 Ψ |
| 2 | and gradients | 4 Ψ + 12 Ψ/N | 2 Ψ |
| 3 | and parameters | 16 Ψ/N, and one unit whole for a moment | 3 Ψ |

(What is sent: in elements, times (N - 1)/N.) An all-reduce is a reduce-scatter and an all-gather. Stages 1 and 2 put
the step between the two halves, so they send no more than data parallelism does. Stage 3 gathers the parameters of a
unit before its forward and once more before its backward pass.

    sharded = Zero(model, wire, torch.optim.Adam, stage=3, lr=1e-3)
    loss(model(inputs)).backward()
    sharded.step()
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vivace.parallel.underhood.collectives import all_gather, broadcast, reduce_scatter
from vivace.parallel.underhood.wire import Wire

__all__ = ["Unit", "Zero"]


class Unit:
    """The parameters of one layer as one flat piece of memory, cut into N shards of the same size.

    ``whole`` holds all of it. The layer's own parameters are views of ``whole``: if its memory is given back and taken
    again, they follow. ``shard`` is this rank's part, and the only thing that the optimizer knows.
    """

    def __init__(self, layer: nn.Module, wire: Wire) -> None:
        self.wire = wire
        self.parameters = list(layer.parameters())
        flat = torch.cat([each.detach().reshape(-1) for each in self.parameters])
        padding = -len(flat) % wire.size
        self.whole = torch.cat([flat, flat.new_zeros(padding)])
        broadcast(wire, self.whole)
        self.shard = nn.Parameter(self._parts(self.whole)[wire.rank].clone())
        self._whole_bytes = self.whole.untyped_storage().nbytes()
        begin = 0
        for parameter in self.parameters:
            parameter.data = self.whole[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()

    def _parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return list(flat.chunk(self.wire.size))

    def gather(self) -> None:
        """All shards, from all ranks, into ``whole``."""
        storage = self.whole.untyped_storage()
        if storage.nbytes() == 0:
            storage.resize_(self._whole_bytes)
        whole = self.whole.data  # not seen by autograd: the values are those that the layer had
        parts = self._parts(whole)
        parts[self.wire.rank].copy_(self.shard.data)
        all_gather(self.wire, parts)

    def release(self) -> None:
        """Give the memory of ``whole`` back; the parameters stay as they are, without values."""
        self.whole.untyped_storage().resize_(0)

    @torch.no_grad()
    def reduce(self) -> None:
        """The mean gradient over the ranks: each rank gets that of its shard, and drops the rest."""
        flat = torch.zeros(self._parts(self.whole)[0].numel() * self.wire.size, dtype=self.whole.dtype)
        begin = 0
        for parameter in self.parameters:
            if parameter.grad is not None:
                flat[begin : begin + parameter.numel()] = parameter.grad.reshape(-1)
            begin += parameter.numel()
            parameter.grad = None
        mean = reduce_scatter(self.wire, self._parts(flat)) / self.wire.size
        self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean


class Zero:
    """A model whose layers are the units, and an optimizer that steps on this rank's shards."""

    def __init__(self, model: nn.Sequential, wire: Wire, optimizer: Any, stage: int, **options: Any) -> None:
        assert stage in (1, 2, 3)
        self.stage = stage
        layers = [layer for layer in model if next(layer.parameters(), None) is not None]
        self.units = [Unit(layer, wire) for layer in layers]
        self.optimizer = optimizer([unit.shard for unit in self.units], **options)
        self.largest_bytes = 0  # of parameters and gradients, at any moment of a pass
        for unit, layer in zip(self.units, layers, strict=True):
            self._follow(unit, layer)
        self._look()

    def step(self) -> None:
        for unit in self.units:
            if self.stage == 1:
                unit.reduce()
        self.optimizer.step()
        self.optimizer.zero_grad()
        for unit in self.units:
            if self.stage < 3:
                unit.gather()

    def kept_bytes(self) -> int:
        """What this rank keeps between two steps: parameters, and the optimizer's states of its shards."""
        wholes = [unit.whole.untyped_storage().nbytes() for unit in self.units]
        shards = [unit.shard.numel() * unit.shard.element_size() for unit in self.units] if self.stage == 3 else []
        states = [
            value.numel() * value.element_size()
            for state in self.optimizer.state.values()
            for value in state.values()
            if torch.is_tensor(value) and value.dim() > 0
        ]
        return sum(wholes) + sum(shards) + sum(states)

    def _follow(self, unit: Unit, layer: nn.Module) -> None:
        """Gather before each pass and release after it (stage 3); reduce once all gradients are there (2 and 3)."""
        missing = {id(each) for each in unit.parameters}

        def gradient_is_there(parameter: torch.Tensor) -> None:
            self._look()
            missing.discard(id(parameter))
            if not missing and self.stage > 1:
                unit.reduce()
                missing.update(id(each) for each in unit.parameters)
                if self.stage == 3:
                    unit.release()

        for parameter in unit.parameters:
            parameter.register_post_accumulate_grad_hook(gradient_is_there)
        if self.stage == 3:
            unit.release()
            layer.register_forward_pre_hook(lambda *_: unit.gather())
            layer.register_forward_hook(self._after_forward(unit))

    def _after_forward(self, unit: Unit) -> Any:
        def release(_layer: nn.Module, _inputs: Any, outputs: torch.Tensor) -> None:
            self._look()
            unit.release()
            if outputs.requires_grad:  # their gradient comes right before the layer's backward pass
                outputs.register_hook(lambda _gradient: unit.gather())

        return release

    def _look(self) -> None:
        """How much memory is taken now, if it is the most so far."""
        whole = sum(unit.whole.untyped_storage().nbytes() for unit in self.units)
        gradients = [each.grad for unit in self.units for each in (*unit.parameters, unit.shard)]
        held = whole + sum(each.numel() * each.element_size() for each in gradients if each is not None)
        self.largest_bytes = max(self.largest_bytes, held)
