"""During one forward: which of the script's own modules call a softmax."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

__all__ = ["SoftmaxWatch"]


_COMPUTE_WEIGHTS = ("softmax", "multi_head_attention_forward")


class SoftmaxWatch:
    """A context around a root's forward. ``modules`` has, in order, the innermost one that is not torch's own."""

    def __init__(self) -> None:
        self.modules: list[torch.nn.Module] = []
        self._running: list[torch.nn.Module] = []
        self._stack = ExitStack()

    def __enter__(self) -> SoftmaxWatch:
        for register, note in (
            (register_module_forward_pre_hook, self._begins),
            (register_module_forward_hook, self._ends),
        ):
            self._stack.callback(register(note).remove)
        self._stack.enter_context(_Mode(self._called))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._running.clear()
        self._stack.close()

    def _begins(self, module: torch.nn.Module, _args: Any) -> None:
        self._running.append(module)

    def _ends(self, module: torch.nn.Module, _args: Any, _output: Any) -> None:
        while self._running and self._running.pop() is not module:  # one that raised was left without a word
            pass

    def _called(self) -> None:
        own = [module for module in self._running if type(module).__module__.partition(".")[0] != "torch"]
        if own and not any(own[-1] is known for known in self.modules):
            self.modules.append(own[-1])


class _Mode(TorchFunctionMode):
    def __init__(self, called: Any) -> None:
        super().__init__()
        self.called = called

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _COMPUTE_WEIGHTS:
            self.called()
        return func(*args, **(kwargs or {}))
