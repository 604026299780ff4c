"""A parameter (or its gradient, or a state of its optimizer) of which each rank holds some rows.

To the script it is the tensor that it was: every function of torch sees the whole of it. What works entry by entry is
done with the rank's rows (``sharded_rules``); anything else gathers the whole first, and writes back what it changed.
The rows of the ranks are those of FSDP2: equal chunks of dimension 0, the last ones smaller or empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch.utils._pytree import tree_flatten, tree_map

from vivace.scale.errors import ScaleError
from vivace.scale.group import Group
from vivace.scale.rows import UNKNOWN, name_of
from vivace.scale.shares import Shares

__all__ = [
    "RULES", "Chunks", "Sharded", "all_plain", "become_sharded", "free_addresses", "gathered_rows", "in_memory",
    "settle", "whole_of",
]  # fmt: skip

RULES: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {}
"""The name of a torch function → what it does with rows of a parameter; filled by ``sharded_rules``."""


@dataclass(frozen=True)
class Chunks(Shares):
    """Rows as ``torch.chunk`` cuts them.

    >>> Chunks(5, 0, 4).sizes
    [2, 2, 1, 0]
    """

    @property
    def sizes(self) -> list[int]:
        most = -(-self.size // self.world)
        return [max(0, min(most, self.size - most * rank)) for rank in range(self.world)]


class Memory:
    """Stands for the storage that a sharded tensor would have. Tensors that share their rows share this."""

    def __init__(self) -> None:
        self.whole: torch.Tensor | None = None
        """For those who read memory by its address: all of it, while ``shown`` holds us."""


class Sharded(torch.Tensor):
    """Made by ``Sharded.of``, or out of a parameter by ``become_sharded``. It has no storage of its own."""

    _local: torch.Tensor
    """This rank's rows."""
    _group: Group
    _leaf: torch.Tensor | None
    """Of a parameter: its rows as a parameter of their own. It holds the gradient and the optimizer's state."""
    _seen_gradient: Sharded | None
    _memory: Memory
    _on_requires_grad: Callable[[bool], None] | None

    @staticmethod
    def of(local: torch.Tensor, shape: Any, group: Group) -> Sharded:
        made = _empty(shape, local, False)
        made._local, made._group, made._memory = local, group, Memory()
        made._leaf = made._seen_gradient = made._on_requires_grad = None
        return made

    def like(self, local: torch.Tensor) -> Sharded:
        return Sharded.of(local, self.shape, self._group)

    def same_rows(self) -> Sharded:
        """Another object with the same memory: ``detach()``, ``.data``."""
        made = self.like(self._local.detach())
        made._memory = self._memory
        return made

    @property
    def _chunks(self) -> Chunks:
        return Chunks(self.shape[0], self._group.rank, self._group.world)

    def own_rows(self, whole: torch.Tensor) -> torch.Tensor:
        """Of a plain tensor of the same shape."""
        chunks = self._chunks
        return whole.narrow(0, min(chunks.start, whole.size(0)), chunks.mine)

    @property
    def grad(self) -> Any:
        """Not one of torch's functions: ``gradients`` has replaced the attribute of all tensors."""
        gradient = None if self._leaf is None else self._leaf.grad
        if gradient is None:
            self._seen_gradient = None
        elif self._seen_gradient is None or self._seen_gradient._local is not gradient:
            self._seen_gradient = self.like(gradient)
        return self._seen_gradient

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        assert self._leaf is not None, "only parameters have gradients"
        settle()
        self._seen_gradient = None
        if isinstance(value, Sharded):
            self._leaf.grad = value._local
        else:
            self._leaf.grad = None if value is None else self.own_rows(value.detach()).clone()

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        rule = RULES.get(name)
        if rule is not None:
            answer = rule(func, args, kwargs)
            if answer is not UNKNOWN:
                return answer
        return _on_whole(func, name, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Reached only around torch's Python functions, below gradients: those must not be lost."""
        if torch.is_grad_enabled() and any(isinstance(each, Sharded) and each.requires_grad for each in args):
            raise ScaleError(f"{func} was called around torch's Python functions with a parameter that is sharded")
        with torch.no_grad():
            return func(*all_plain(args), **all_plain(kwargs or {}))


def _empty(shape: Any, like: torch.Tensor, requires_grad: bool) -> Sharded:
    make: Any = torch.Tensor._make_wrapper_subclass
    made: Sharded = make(Sharded, tuple(shape), dtype=like.dtype, device=like.device, requires_grad=requires_grad)
    return made


def become_sharded(parameter: Any, local: torch.Tensor, group: Group, on_requires_grad: Any) -> None:
    """The object stays: whoever holds it (an optimizer, a list of the script's) holds the sharded one from here on."""
    needs = parameter.requires_grad
    gradient, parameter.grad = parameter.grad, None
    shape = parameter.shape
    shell = _empty(shape, local, needs)
    torch._C._swap_tensor_impl(parameter, shell)
    parameter.__class__, shell.__class__ = Sharded, torch.Tensor  # type: ignore[assignment]
    parameter._is_param = True
    parameter._local, parameter._group, parameter._seen_gradient = local, group, None
    parameter._memory = Memory()
    parameter._leaf = torch.nn.Parameter(local, requires_grad=needs)
    parameter._on_requires_grad = on_requires_grad
    if gradient is not None:
        parameter.grad = gradient


# -- the whole of it -------------------------------------------------------------------------------------------------


def whole_of(sharded: Sharded) -> torch.Tensor:
    """All rows, on every rank, as a plain tensor; a parameter's with its gradient. Every rank must ask."""
    settle()
    if threading.current_thread() is not threading.main_thread():
        raise ScaleError(
            "a thread of the script reads a parameter that lies on several ranks; read it in the main thread"
        )
    if sharded._leaf is not None and sharded._leaf.requires_grad and torch.is_grad_enabled():
        return _Whole.apply(sharded._leaf, sharded._chunks, sharded._group)
    return sharded._group.gather(sharded._local.detach(), sharded._chunks, 0)


def gathered_rows(rows: torch.Tensor, chunks: Chunks, group: Group) -> torch.Tensor:
    """The rows of all ranks, with their gradient."""
    return _Whole.apply(rows, chunks, group)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, chunks: Chunks, group: Group) -> torch.Tensor:
        ctx.how = (chunks, group)
        return group.gather(rows.detach(), chunks, 0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _OwnRows.apply(gradient, *ctx.how), None, None


class _OwnRows(torch.autograd.Function):
    """This rank's rows of the mean over ranks (see ``crossing`` for why the mean)."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, chunks: Chunks, group: Group) -> torch.Tensor:
        ctx.how = (chunks, group)
        mean = group.sum(gradient.detach().clone(memory_format=torch.contiguous_format)).div_(group.world)
        return mean.narrow(0, min(chunks.start, mean.size(0)), chunks.mine).clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Whole.apply(gradient, *ctx.how), None, None


def all_plain(tree: Any) -> Any:
    """The same structure with everything gathered."""
    return tree_map(lambda leaf: whole_of(leaf) if isinstance(leaf, Sharded) else leaf, tree)


def _on_whole(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Run with whole tensors. What the function changed in place is written back."""
    leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Sharded)]
    wholes = {id(leaf): _whole_for(leaf) for leaf in leaves}
    versions = {id(leaf): wholes[id(leaf)]._version for leaf in leaves}
    args, kwargs = tree_map(lambda leaf: wholes.get(id(leaf), leaf), (args, kwargs))
    result = func(*args, **kwargs)
    for leaf in leaves:
        if wholes[id(leaf)]._version != versions[id(leaf)]:
            _write_back(leaf, wholes[id(leaf)])
    unchanged = {id(wholes[id(leaf)]): leaf for leaf in leaves if not wholes[id(leaf)].requires_grad}
    if isinstance(result, torch.Tensor) and id(result) in unchanged:  # in place, or .contiguous() of what is so
        return unchanged[id(result)]
    _lend(leaves, wholes, result)
    return result


def _whole_for(sharded: Sharded) -> torch.Tensor:
    """Where its address was asked for, views of it lie there."""
    if sharded._memory.whole is None or (sharded.requires_grad and torch.is_grad_enabled()):
        return whole_of(sharded)
    return in_memory(sharded)


def _write_back(sharded: Sharded, whole: torch.Tensor) -> None:
    with torch.no_grad():
        sharded._local.copy_(sharded.own_rows(whole.detach()))


# -- its address -----------------------------------------------------------------------------------------------------

_SHOWN: list[Memory] = []


def in_memory(sharded: Sharded) -> torch.Tensor:
    """The whole of it at an address that stays, with the values of now. Libraries read tensors by their address
    (safetensors), and compare addresses to find those that are tied."""
    with torch.no_grad():
        whole = whole_of(sharded).detach()
        if sharded._memory.whole is None:
            sharded._memory.whole = whole
            _SHOWN.append(sharded._memory)
        else:
            sharded._memory.whole.data.copy_(whole)  # .data: it is not the script that writes
    return sharded._memory.whole


def free_addresses() -> None:
    """Before the next forward and the next step."""
    for memory in _SHOWN:
        memory.whole = None
    _SHOWN.clear()


# -- views of the whole that the script may write into ---------------------------------------------------------------

_LENT: list[tuple[Any, torch.Tensor, int, Any]] = []  # (sharded, its whole, the version of that, views of it)


def _lend(leaves: list[Sharded], wholes: dict[int, torch.Tensor], result: Any) -> None:
    """``weight.data[0].zero_()``: what is written into a view is found when anybody looks at the parameter again."""
    views = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor) and leaf._is_view()]
    for leaf in leaves if views else []:
        whole = wholes[id(leaf)]
        shared = [ref(view) for view in views if _base(view) is _base(whole)]
        if shared and not whole.requires_grad:
            _LENT.append((leaf, whole, whole._version, shared))


def _base(tensor: torch.Tensor) -> Any:
    return tensor._base if tensor._is_view() else tensor


def settle() -> None:
    """Write back what the script wrote into views. Local: each rank keeps its rows of it."""
    if not _LENT:
        return
    lent, _LENT[:] = list(_LENT), []
    for sharded, whole, version, views in lent:
        if whole._version != version:
            _write_back(sharded, whole)
        if any(view() is not None for view in views):
            _LENT.append((sharded, whole, whole._version, views))
