"""The outermost call of each model with parameters: split over the ranks where that was shown to be right."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.utils.checkpoint
from torch.compiler import is_compiling

from vivace.measure.inside.patches import in_place_of
from vivace.scale.errors import ScaleError
from vivace.scale.fsdp import Sharding
from vivace.scale.plan import Planner, Replicated, Split, signature
from vivace.scale.same_batches import SameBatches
from vivace.scale.transforms import is_traced, is_transformed

__all__ = ["Forwards"]


class Forwards:
    """The models seen so far, and how their calls are split. ``meet`` is told each new one, ``tell`` that its calls are
    planned. With ``sharding``, each is sharded once it is known how it is called."""

    def __init__(
        self,
        planner: Planner,
        batches: SameBatches,
        meet: Callable[[torch.nn.Module], None],
        tell: Callable[[], None],
        sharding: Sharding | None = None,
    ) -> None:
        self.planner, self.batches, self.meet, self.tell = planner, batches, meet, tell
        self.sharding = sharding
        self.pid = os.getpid()
        self.plans: WeakKeyDictionary[torch.nn.Module, dict[Any, Any]] = WeakKeyDictionary()
        self.calls: WeakKeyDictionary[torch.nn.Module, dict[Any, int]] = WeakKeyDictionary()
        self.splits: set[str] = set()  # names of models that are split
        self.whole: dict[str, str] = {}  # model → why every rank runs it whole
        self.inside = False
        self.called: Counter[torch.nn.Module] | None = None
        """How often each module inside a new model is called, while that is counted."""

    def install(self) -> None:
        original = torch.nn.Module.__call__
        forwards = self

        def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            elsewhere = forwards.inside or is_compiling() or os.getpid() != forwards.pid  # a loader's worker
            if elsewhere or next(self.parameters(), None) is None or forwards.is_not_for_numbers(self):
                if forwards.called is not None:
                    forwards.called[self] += 1
                return original(self, *args, **kwargs)
            forwards.inside = True
            try:
                return forwards.run(self, lambda *a, **k: original(self, *a, **k), args, kwargs)
            finally:
                forwards.inside = False

        torch.nn.Module.__call__ = in_place_of(original, call)  # type: ignore[method-assign]
        self._around_checkpoints()

    def is_not_for_numbers(self, root: torch.nn.Module) -> bool:
        if is_transformed() and self.sharding is not None and self.sharding.has_sharded(root):
            raise ScaleError("torch.func runs a model whose parameters lie on several ranks: use --with ddp or zero1")
        return is_traced() or is_transformed()

    def _around_checkpoints(self) -> None:
        """What is computed again in a backward pass belongs to the forward that it is a part of."""
        original = torch.utils.checkpoint.checkpoint
        region = self.planner.region

        def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.inside:
                return original(function, *args, **kwargs)
            shares, dim = region.shares, region.dim

            def again(*args: Any, **kwargs: Any) -> Any:
                before = region.shares, region.dim, self.inside
                region.shares, region.dim, self.inside = shares, dim, True
                try:
                    return function(*args, **kwargs)
                finally:
                    region.shares, region.dim, self.inside = before

            return original(again, *args, **kwargs)

        torch.utils.checkpoint.checkpoint = in_place_of(original, checkpoint)

    def run(self, root: torch.nn.Module, call: Any, args: Any, kwargs: Any) -> Any:
        is_new = root not in self.plans
        if is_new:
            self.plans[root], self.calls[root] = {}, {}
            self.meet(root)
        self.batches.of_call(root, args, kwargs)
        if self.sharding is not None:
            call = self.sharding.around(root, call)
        key = signature(root, args, kwargs)
        plan = self.plans[root].get(key)
        if plan is None:
            plan = self.plans[root][key] = self._find(root, call, args, kwargs, is_new)
            self._tell(root, plan)
        if isinstance(plan, Replicated):
            return self.planner.run_whole(root, call, args, kwargs)
        self._prove_again(root, key, plan, call, args, kwargs)
        return self.planner.run(root, call, args, kwargs, plan)

    def _find(self, root: torch.nn.Module, call: Any, args: Any, kwargs: Any, is_new: bool) -> Any:
        self.called = Counter() if is_new and self.sharding is not None else None
        plan = self.planner.find(root, call, args, kwargs)
        called, self.called = self.called, None
        if self.sharding is not None and called is not None:
            self.sharding.shard(root, called)
        return plan

    def _prove_again(self, root: Any, key: Any, plan: Split, call: Any, args: Any, kwargs: Any) -> None:
        count = self.calls[root][key] = self.calls[root].get(key, 0) + 1
        again = count > 1 and count & (count - 1) == 0  # calls 2, 4, 8, 16, …
        if again and not self.planner.still_holds(root, call, args, kwargs, plan):
            raise ScaleError(
                f"at call {count}, {type(root).__name__} gives other outputs for parts of the batch than for the whole"
            )

    def _tell(self, root: torch.nn.Module, plan: Any) -> None:
        name = type(root).__name__
        if isinstance(plan, Split):
            self.splits.add(name)
            self.whole.pop(name, None)
        elif name not in self.splits:
            self.whole[name] = plan.reason
        self.tell()
