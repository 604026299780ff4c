"""Each rank keeps a share of the parameters, gradients and optimizer states: ``vivace run --ranks 4 --with fsdp``.

A model is sharded right before its first forward, block by block, by torch's FSDP2. What cannot be sharded stays
replicated, with the reason told. The script goes on with the parameters that it has: see ``sharded``.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch

from vivace.measure.inside.patches import in_place_of
from vivace.scale.blocks import repeated_blocks
from vivace.scale.copies import plain_copy, save_plain, trace_plain
from vivace.scale.crossing import mean_over_ranks
from vivace.scale.errors import ScaleError
from vivace.scale.fsdp2 import Engine, Unit
from vivace.scale.gradients import Gradients
from vivace.scale.group import Group
from vivace.scale.left_out import cannot_be_sharded, is_held, left_out
from vivace.scale.sharded import Chunks, Sharded, free_addresses, gathered_rows, settle
from vivace.scale.sharded_steps import ShardedSteps

__all__ = ["Sharding"]

_PATIENCE_S = 1.0


class Sharding:
    def __init__(self, group: Group, gradients: Gradients, engine: Engine) -> None:
        self.group, self.gradients, self.engine = group, gradients, engine
        self.steps = ShardedSteps(self._before_step)
        self._slots: list[tuple[ref[Unit], int]] = []  # in the order in which all ranks made them; and its parameters
        self._of_root: WeakKeyDictionary[torch.nn.Module, list[ref[Unit]]] = WeakKeyDictionary()
        self.replicated: dict[str, str] = {}
        """Name of a model, or of a parameter in it → why every rank keeps it."""
        self._stays_whole = False  # the script takes second derivatives

    def install(self) -> None:
        self.steps.install()
        save_plain()
        trace_plain()
        self._around_backward()
        self._around_grad()

    # -- a model before its first forward ----------------------------------------------------------------------------

    def shard(self, root: torch.nn.Module, called: Counter[torch.nn.Module]) -> None:
        """``called``: how often each of its modules was, in a trial run of its forward."""
        if (reason := cannot_be_sharded(root)) is not None:
            self.replicated[type(root).__name__] = reason
        else:
            for top in self._not_yet_sharded(root):
                self._shard(root, top, called)
        inside = set(root.modules())
        self._of_root[root] = [ref(unit) for unit in self.units if unit.module in inside]

    def _not_yet_sharded(self, module: torch.nn.Module) -> list[torch.nn.Module]:
        """The module itself; of one that has sharded ones in it (a part that was called before), those beside them."""
        own = list(module.parameters())
        if not any(isinstance(each, Sharded) for each in own):
            return [module] if own else []
        return [found for child in module.children() for found in self._not_yet_sharded(child)]

    def _shard(self, root: torch.nn.Module, top: torch.nn.Module, called: Counter[torch.nn.Module]) -> None:
        own = list(top.named_parameters())
        left_out = self._left_out(own)
        for name, each in own:
            if each in left_out:
                self.replicated[f"{type(root).__name__}.{name}"] = left_out[each]
        mine = [each for _, each in own if each not in left_out]
        if mine:
            blocks = repeated_blocks(top, lambda block: self._is_block(block, left_out, called))
            self.gradients.forget(mine)
            units = self.engine.shard(top, blocks, set(left_out), plain_copy)
            self._slots += [(ref(unit), len(unit.helds)) for unit in units]
            self.steps.cut_states(mine)

    def _left_out(self, own: list[tuple[str, Any]]) -> dict[Any, str]:
        """Parameters that stay on every rank, with the reason. All ranks leave out the same ones."""
        found = {each: why for _, each in own if (why := left_out(each, own)) is not None}
        torch.clear_autocast_cache()  # which holds graphs of the trial run
        if any(is_held(each, own) for _, each in own):
            gc.collect()
        until = time.monotonic() + _PATIENCE_S
        while any(is_held(each, own) for _, each in own) and time.monotonic() < until:
            time.sleep(0.001)  # the thread that has just sent them to all ranks lets go of them
        found.update({each: why for _, each in own if (why := is_held(each, own)) is not None})
        everywhere = self.group.largest(torch.tensor([each in found for _, each in own], dtype=torch.uint8)).tolist()
        return {each: found.get(each, "held on another rank") for (_, each), yes in zip(own, everywhere) if yes}

    def _is_block(self, block: torch.nn.Module, left_out: dict[Any, str], called: Counter[torch.nn.Module]) -> bool:
        """Called by every rank's forward: one that some rank passes by would be waited for."""
        yes = self.group.all_agree(called[block] > 0)
        return yes and any(each not in left_out for each in block.parameters())

    @property
    def units(self) -> list[Unit]:
        """Of the models that are still there: a unit lives as long as its module."""
        return [unit for slot, _ in self._slots if (unit := slot()) is not None]

    def has_sharded(self, root: torch.nn.Module) -> bool:
        inside = set(root.modules())
        return any(unit.module in inside for unit in self.units)

    def parameters(self) -> list[Sharded]:
        return [each for unit in self.units for each in unit.parameters]

    @property
    def bytes_here(self) -> tuple[int, int]:
        """(of the sharded parameters on this rank, of all of them)"""
        parameters = self.parameters()
        size = [each.element_size() for each in parameters]
        here = sum(each._local.numel() * one for each, one in zip(parameters, size))
        return here, sum(each.numel() * one for each, one in zip(parameters, size))

    def notes(self) -> list[str]:
        """What each rank keeps, in words."""
        here, whole = self.bytes_here
        shares = [f"{_mib(here)} of {_mib(whole)} MiB of parameters on this rank"] if whole else []
        names: dict[str, list[str]] = {}
        for name, reason in self.replicated.items():
            names.setdefault(reason, []).append(name)
        return [*shares, *(f"{_few(each)} on every rank: {reason}" for reason, each in names.items())]

    # -- forward -----------------------------------------------------------------------------------------------------

    def around(self, root: torch.nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            settle()
            free_addresses()
            units = [unit for each in self._of_root.get(root, []) if (unit := each()) is not None]
            for unit in units:
                if (name := unit.replaced()) is not None:
                    raise ScaleError(
                        f"{name} was replaced by another tensor (functional_call and pruning do that) after its "
                        "model was sharded: use --with ddp or zero1"
                    )
            try:
                return call(*args, **kwargs)
            except BaseException:
                for unit in units:
                    unit.reset()
                raise

        return run

    # -- backward ----------------------------------------------------------------------------------------------------

    def _around_backward(self) -> None:
        original = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            if not self._slots:
                return original(*args, **kwargs)
            if kwargs.get("inputs") is not None:
                kwargs["inputs"] = self._leaves_of(kwargs["inputs"])
            graph = bool(kwargs.get("create_graph"))
            self._begin(graph)
            original(*args, **kwargs)
            self._end(graph)
            return None

        torch.autograd.backward = in_place_of(original, backward)

    def _begin(self, create_graph: bool) -> None:
        settle()
        self._stays_whole = self._stays_whole or create_graph
        if self._stays_whole:
            for unit in self._units_of_all_ranks():
                unit.stay_whole(True)

    def _units_of_all_ranks(self) -> list[Unit]:
        """They gather together. A model that the script dropped may wait for the garbage collector on some ranks."""
        here = [slot() for slot, _ in self._slots]
        gone = self.group.largest(torch.tensor([unit is None for unit in here], dtype=torch.uint8)).tolist()
        return [unit for unit, is_gone in zip(here, gone) if unit is not None and not is_gone]

    def _end(self, create_graph: bool) -> None:
        told: list[bool] = []
        for slot, count in self._slots:
            unit = slot()
            more = unit is not None and unit.has_more
            told += [more, *(used or more for used in (unit.used if unit is not None else [False] * count))]
        agreed = iter(self.group.largest(torch.tensor(told, dtype=torch.uint8)).tolist())
        for slot, count in self._slots:
            unit, any_more, used = slot(), next(agreed), list(itertools.islice(agreed, count))
            if unit is None:
                continue  # its model is gone, so nothing came
            if any_more:
                unit.exchange_more()
            unit.end_backward(used)
            if self._stays_whole:
                unit.show_sharded() if create_graph else unit.reset()

    def _before_step(self) -> None:
        settle()
        free_addresses()
        if self._stays_whole:
            for unit in self.units:
                unit.reset()

    def _leaves_of(self, inputs: Any) -> list[Any]:
        """A sharded parameter is in a graph as what FSDP2 gathered, or as what was gathered on demand."""
        asked = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
        found: list[Any] = []
        for each in asked:
            found += [leaf for leaf in self._in_graph(each) if leaf is not None]
        return found

    def _in_graph(self, tensor: Any) -> list[Any]:
        """[the tensor], or for a sharded parameter [what FSDP2 gathered, if it did; its leaf]."""
        if isinstance(tensor, Sharded) and tensor._leaf is not None:
            held = next(held for unit in self.units for held, p in zip(unit.helds, unit.parameters) if p is tensor)
            return [getattr(held, "_unsharded_param", None), tensor._leaf]
        return [tensor]

    def _around_grad(self) -> None:
        original = torch.autograd.grad

        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._slots:
                return original(outputs, inputs, *args, **kwargs)
            asked = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
            words = dict(zip(("grad_outputs", "retain_graph", "create_graph"), args), **kwargs)
            graph = bool(words.get("create_graph"))
            self._begin(graph)
            results = self._grad(original, outputs, asked, words)
            self._end(graph)
            return results

        torch.autograd.grad = in_place_of(original, grad)

    def _grad(self, original: Any, outputs: Any, asked: list[Any], words: dict[str, Any]) -> tuple[Any, ...]:
        places = [self._in_graph(each) for each in asked]
        flat = [leaf for place in places for leaf in place if leaf is not None]
        if all(len(place) == 1 for place in places):
            return tuple(original(outputs, flat, **words))
        optional = words.pop("allow_unused", None)
        zeros = words.pop("materialize_grads", False)
        found = iter(original(outputs, flat, allow_unused=True, **words))
        results: list[Any] = []
        for tensor, place in zip(asked, places):
            parts = [next(found) if leaf is not None else None for leaf in place]
            result = parts[0] if len(place) == 1 else self._put_together(tensor, parts)
            if result is None and zeros:
                result = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            if result is None and not optional:
                raise RuntimeError(
                    "One of the differentiated Tensors appears to not have been used in the graph. "
                    "Set allow_unused=True if this is the desired behavior."
                )
            results.append(result)
        return tuple(results)

    def _put_together(self, parameter: Any, parts: list[Any]) -> Any:
        """The whole gradient: the mean over ranks of what FSDP2's copy got, and the leaf's rows of all ranks."""
        gathered, rows = parts
        there = self.group.largest(torch.tensor([gathered is not None, rows is not None], dtype=torch.uint8)).tolist()
        shape = {"size": tuple(parameter.shape), "dtype": parameter.dtype, "device": parameter.device}
        result = None
        if there[0]:
            result = mean_over_ranks(torch.zeros(**shape) if gathered is None else gathered, self.group)
        if there[1]:
            chunks = Chunks(parameter.shape[0], self.group.rank, self.group.world)
            own = parameter._local.new_zeros(parameter._local.shape) if rows is None else rows
            whole = gathered_rows(own, chunks, self.group)
            result = whole if result is None else result + whole
        return result


def _few(names: list[str]) -> str:
    """
    >>> _few(["a", "b", "c", "d"])
    'a, b and 2 more'
    """
    return ", ".join(names) if len(names) < 4 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _mib(count: int) -> str:
    return f"{count / 2**20:.3g}"
