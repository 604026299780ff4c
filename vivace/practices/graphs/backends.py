"""Where torch hands graphs over: backends of torch.compile that let rewrites change a graph before it runs.

``Eager`` runs the changed graph as it is, for single modules of a model that is not compiled. ``before_inductor`` is
for a model that is: the practice ``compile`` asks it which backend to use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.weak import WeakIdKeyDictionary

from vivace.practices.graphs.attention_pattern import Unlike
from vivace.practices.graphs.attention_rewrite import Rewritten

__all__ = ["Eager", "Rewrite", "before_inductor", "register", "unregister"]

Rewrite = Callable[[fx.GraphModule, Sequence[Any]], Rewritten]

_rewrites: list[Rewrite] = []


def register(rewrite: Rewrite) -> None:
    """For everything that this process compiles from now on."""
    if rewrite not in _rewrites:
        _rewrites.append(rewrite)


def unregister(rewrite: Rewrite) -> None:
    if rewrite in _rewrites:
        _rewrites.remove(rewrite)


def before_inductor(mode: str | None) -> Any | None:
    """A backend that does what torch's own does, after the rewrites; None where there are none."""
    if not _rewrites:
        return None
    inductor = torch._TorchCompileInductorWrapper(mode, None, None)

    def rewritten(module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        for rewrite in _rewrites:
            module = rewrite(module, inputs).module
        return inductor(module, inputs, **options)

    return rewritten


class Eager:
    """Runs the rewritten graphs of one module kernel by kernel, as the module itself would."""

    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite
        self.graphs = self.changed = 0
        self.left: list[Unlike] = []

    @property
    def is_of_no_use(self) -> bool:
        return self.graphs > 0 and not self.changed

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **_options: Any) -> Callable[..., Any]:
        done = self.rewrite(module, inputs)
        self.graphs += 1
        self.changed += len(done.masks)
        self.left += done.left
        return _Guarded(module, done, inputs) if done.fixed else done.module.forward


class _Guarded:
    """The rewritten graph, as long as the buffers that it was made from hold what they held; else the script's own.

    torch uses one graph for all blocks of a model: each block's buffer is compared once, and then known.
    """

    def __init__(self, original: fx.GraphModule, done: Rewritten, inputs: Sequence[Any]) -> None:
        self.original, self.rewritten = original.forward, done.module.forward
        self.held = {index: inputs[index].detach().clone() for index in done.fixed}
        self.versions: Any = WeakIdKeyDictionary()
        """Of each buffer that was compared: its version then, and whether it held the same."""

    def __call__(self, *inputs: Any) -> Any:
        for index, held in self.held.items():
            buffer = inputs[index]
            known = self.versions.get(buffer)
            if known is None or known[0] != buffer._version:
                same = buffer.shape == held.shape and bool(torch.equal(buffer, held))
                known = self.versions[buffer] = (buffer._version, same)
            if not known[1]:
                return self.original(*inputs)
        return self.rewritten(*inputs)
