"""What a script may hold while CUDA graphs are replayed (``compile=reduce-overhead``, ``max-autotune``).

A graph writes to the same memory at every replay: outputs, activations kept for backward, and gradients. torch reuses
that memory from the moment that a step is marked to begin. Used naively, gradients that accumulate over micro-batches
are overwritten (an error while graphs are recorded, and silently wrong sums once they are replayed), and so are the
activations of a forward whose backward is still to come. So here

- the script gets its own copy of outputs, and of gradients that ``torch.autograd.grad`` returns;
- a step is marked only when no forward waits for its backward (two forwards for one loss, a GAN);
- gradients that are still there when one is marked (accumulation, ``zero_grad(set_to_none=False)``) move out first.
"""

from __future__ import annotations

import functools
from typing import Any
from weakref import WeakSet

from vivace.measure.inside.patches import in_place_of
from vivace.practices.engine.tensors import map_tensors
from vivace.practices.engine.torch_later import torch

__all__ = ["GraphMemory"]


class _Forward:
    """One forward, held by the autograd graph that it made: used once a gradient reaches its outputs, and dropped when
    the graph is gone without."""

    def __init__(self, forwards: _Forwards) -> None:
        self.forwards, self.used = forwards, False
        forwards.waiting += 1

    def __call__(self, _gradient: torch.Tensor) -> None:
        if not self.used:
            self.used = True
            self.forwards.waiting -= 1

    def __del__(self) -> None:
        if not self.used:
            self.forwards.waiting -= 1
            self.forwards.dropped += 1


class _Forwards:
    """Since the last mark: those that wait for a backward, and those that never got one (metrics, validation)."""

    def __init__(self) -> None:
        self.waiting = self.dropped = 0


class GraphMemory:
    """One per process: all CUDA graphs of a device share their memory."""

    def __init__(self) -> None:
        self.forwards = _Forwards()
        self.roots: WeakSet[torch.nn.Module] = WeakSet()

    @functools.cached_property
    def moved(self) -> Any:
        """Gradients that are the script's own already."""
        from torch.utils.weak import WeakIdKeyDictionary

        return WeakIdKeyDictionary()

    def before_forward(self, root: torch.nn.Module) -> None:
        """Where a loop drops its graphs, what still waits is its last loss, which nobody will use."""
        self.roots.add(root)
        if self.forwards.waiting and not self.forwards.dropped:
            return
        self.forwards.dropped = 0
        for known in self.roots:  # a GAN's other network has gradients too
            self._move_gradients(known)
        torch.compiler.cudagraph_mark_step_begin()

    def after_forward(self, value: Any) -> Any:
        forward: _Forward | None = None

        def own(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal forward
            if not in_graph_memory(tensor):
                return tensor
            copy = tensor.clone()
            if copy.requires_grad:
                forward = forward or _Forward(self.forwards)
                copy.register_hook(forward)
            return copy

        return map_tensors(value, own)

    def _move_gradients(self, root: torch.nn.Module) -> None:
        """Once per step: what accumulates then is added in place. Views are DistributedDataParallel's buckets."""
        for parameter in root.parameters():
            gradient = parameter.grad
            if gradient is None or gradient in self.moved or gradient._is_view() or not in_graph_memory(gradient):
                continue
            parameter.grad = gradient.clone()
            self.moved[parameter.grad] = True

    def own_gradients_of_autograd_grad(self) -> None:
        """Patch ``torch.autograd.grad``: a script may keep what it returns (a gradient penalty, meta-learning)."""
        original = torch.autograd.grad

        def grad(*args: Any, **kwargs: Any) -> Any:
            gradients = original(*args, **kwargs)
            return tuple(g.clone() if g is not None and in_graph_memory(g) else g for g in gradients)

        torch.autograd.grad = in_place_of(original, grad)


def in_graph_memory(tensor: torch.Tensor) -> bool:
    """Possibly: graphs are made of GPU kernels only."""
    return tensor.is_cuda
