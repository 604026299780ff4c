"""Gradient accumulation: the same global batch in smaller pieces, when memory is the limit. ``accumulation=4``.

A script that is not edited computes one loss from the whole batch, so the pieces are inside the model: its forward runs
piece by piece and keeps nothing, and each piece is computed again when its gradient comes. The loss, the step and the
schedule are those of the whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import memory_limit
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_ALIKE = 1e-3  # of the largest answer: what other sizes of a product may round differently
_MARK = "_vivace_pieces"


class InPieces(Change):
    """The forward of the model's class is replaced, and acts on the root alone: no wrapper, so names stay."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument is not None and (not argument.isdecimal() or int(argument) < 2):
            raise ValueError(f"{argument!r} is not a number of passes, 2 or more")
        self.count = int(argument or 2)
        self.checked = False

    def model(self, root: torch.nn.Module) -> None:
        if getattr(root, "_compiled_call_impl", None) is not None or hasattr(root, "_orig_mod"):
            raise NotApplicable("the model is compiled")
        norms = [m for m in root.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        if norms:
            raise NotApplicable("batch norm would see the pieces instead of the batch: another training")
        kind = type(root)
        if _MARK not in kind.__dict__:
            _replace_forward(kind)
        setattr(root, _MARK, self)

    def run(self, original: Any, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from torch.utils.checkpoint import checkpoint

        try:
            pieces = _pieces(args, kwargs, self.count)
            if not self.checked:
                _refuse_mixing(original, root, *pieces[0])
                self.checked = True
        except NotApplicable as reason:
            self._give_up(root, str(reason))
            return original(root, *args, **kwargs)
        done = [checkpoint(_call, original, root, *piece, use_reentrant=False) for piece in pieces]
        try:
            whole = _joined(done, [_size(*piece) for piece in pieces])
        except NotApplicable as reason:
            self._give_up(root, str(reason))
            return original(root, *args, **kwargs)
        self.applied(f"{type(root).__name__} in {len(pieces)} passes; each is computed again for its gradient")
        return whole

    def _give_up(self, root: torch.nn.Module, reason: str) -> None:
        setattr(root, _MARK, None)
        if self.done is None:
            self.refused = reason


def _replace_forward(kind: Any) -> None:
    original = kind.forward
    setattr(kind, _MARK, None)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        change = getattr(self, _MARK)
        if change is None or not torch.is_grad_enabled() or not self.training:
            return original(self, *args, **kwargs)
        return change.run(original, self, args, kwargs)

    forward.__wrapped__ = original  # type: ignore[attr-defined]  # libraries look at a forward's signature
    kind.forward = forward


def _call(original: Any, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return original(root, *args, **kwargs)


def _size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The samples of a batch: the length of the first tensor."""
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor) and each.dim()]
    if not tensors:
        raise NotApplicable("the model's inputs are no tensors: nothing says how to split them")
    return len(tensors[0])


def _pieces(args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    size = _size(args, kwargs)
    if size < count:
        raise NotApplicable(f"a batch of {size} cannot be split into {count}")
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.dim() and len(value) != size:
            raise NotApplicable(f"the inputs have {size} and {len(value)} rows: nothing says how to split them")
        if isinstance(value, (list, tuple, dict)) and value:
            raise NotApplicable("an input is a list or a dictionary: nothing says how to split it")
    edges = [size * number // count for number in range(count + 1)]

    def cut(value: Any, first: int, last: int) -> Any:
        return value[first:last] if isinstance(value, torch.Tensor) and value.dim() else value

    return [
        (tuple(cut(each, *ends) for each in args), {name: cut(each, *ends) for name, each in kwargs.items()})
        for ends in zip(edges, edges[1:])
    ]


def _refuse_mixing(original: Any, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The answers to the first piece and to its first rows alone must agree: else samples look at each other."""
    if _size(args, kwargs) < 2:
        return
    modes = [(module, module.training) for module in root.modules()]
    root.eval()  # without dropout
    try:
        with torch.no_grad():
            whole = original(root, *args, **kwargs)
            (few, named), *_ = _pieces(args, kwargs, 2)
            part = original(root, *few, **named)
    finally:
        for module, mode in modes:
            module.training = mode
    for all_of_it, some in zip(_tensors(whole), _tensors(part)):
        if not all_of_it.dim() or len(all_of_it) == len(some):
            raise NotApplicable("the model returns something for the whole batch (its loss, perhaps)")
        difference = (all_of_it[: len(some)].double() - some.double()).abs().max()
        if not bool(difference <= _ALIKE * some.double().abs().max().clamp(min=1e-6)):
            raise NotApplicable("the answer to a sample depends on the others of its batch")


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _tensors(each)]
    return []


def _joined(parts: list[Any], sizes: list[int]) -> Any:
    first = parts[0]
    if isinstance(first, torch.Tensor):
        if not first.dim() or any(len(part) != size for part, size in zip(parts, sizes)):
            raise NotApplicable("the model returns something for the whole batch (its loss, perhaps)")
        return torch.cat(parts)
    if type(first) in (tuple, list):
        return type(first)(_joined([part[i] for part in parts], sizes) for i in range(len(first)))
    if type(first) is dict:
        return {name: _joined([part[name] for part in parts], sizes) for name in first}
    raise NotApplicable(f"the model returns a {type(first).__name__}: nothing says how to put it together")


def find(m: Measurement) -> Found | None:
    limit = memory_limit(m)
    if limit is None or (m.micro_batches or 1) > 1 or (m.batch_size or 0) < 2:
        return None
    return Found(
        exposed_ms=0.0,  # it makes room, not speed
        evidence={"batch_size": m.batch_size, "backward_passes_per_step": m.micro_batches or 1.0, "limit": limit},
        says=f"{limit}; two passes of {(m.batch_size or 0) // 2} samples per step need about half the activations",
        by_hand=_LINES,
    )


_LINES = (
    "# loader of batch_size // 2\n"
    "for i, (inputs, targets) in enumerate(loader):\n"
    "    loss = criterion(model(inputs), targets) / 2\n"
    "    loss.backward()                      # under DDP, around all but the last: with model.no_sync():\n"
    "    if i % 2 == 1:\n"
    "        optimizer.step(); scheduler.step(); optimizer.zero_grad()"
)

PRACTICE = Practice(
    name="accumulation",
    title="gradient accumulation",
    family="memory",
    risk="algorithmic",
    source="DLO-JZ: large batches. R19: exhaust the methods of one GPU first.",
    why=(
        "Gradients of several small batches are added before one optimizer step: the gradient of the large batch, with "
        "the memory of the small one. With losses that are means over equal batches it is the same optimisation "
        "problem; batch norm is not, for it sees the small batches, nor is a mean over tokens when lengths differ. "
        "Small batches use a GPU less well: take it when the batch must be larger than what fits, not for speed. From "
        "outside, each piece is computed again for its gradient: a third more arithmetic, and the loss, steps and "
        "schedule stay those of the whole batch (batch=4096,accumulation=8)."
    ),
    by_hand=_LINES,
    find=find,
    change=InPieces,
    argument="the number of passes (2)",
    excludes=("checkpointing", "compile", "ddp", "fsdp", "zero1"),
    order=60,
)
