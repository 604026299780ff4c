"""Counts the floating-point operations of one step from the operators that run, with torch's own formulas.

Counted once, outside the timed window. What is recomputed during backward (activation checkpointing) is work for the
hardware but not for the model, so it is kept apart. Attention is counted in full (torch's formulas do not halve it
for a causal mask). The operand types are kept too: the peak to compare with depends on them.
"""

from __future__ import annotations

import sys
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vivace.measure.inside.bytecode import unwritten
from vivace.measure.inside.counting.cells import CellWatch
from vivace.measure.inside.counting.exchanges import ExchangeCount
from vivace.measure.inside.counting.operators import OperatorWatch
from vivace.measure.inside.counting.recurrent import FORMULAS
from vivace.protocol.payload import SeenFlops

with unwritten():
    from torch.utils.flop_counter import flop_registry

__all__ = [
    "FlopCount",
    "can_run_uncompiled",
    "compiled_frames",
    "counting",
    "note_forward",
    "something_was_compiled",
    "uncounted",
]

_counting: list[FlopCount] = []
_formulas: ChainMap[Any, Callable[..., int]] = ChainMap(flop_registry, FORMULAS)  # torch's own come first


def counting() -> bool:
    """Whether FLOPs are being counted now."""
    return bool(_counting)


def note_forward() -> None:
    """A forward that needs gradients: steps need not all have as many as the one that is counted."""
    if _counting:
        _counting[-1].forwards += 1


def uncounted(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call a function without counting: a batch fetch's arithmetic is not the model's, and workers are forked there."""
    if not _counting:
        return function(argument)
    mode = _counting[-1]
    mode.__exit__(None, None, None)
    try:
        return function(argument)
    finally:
        mode.__enter__()


class FlopCount(TorchDispatchMode):
    """Enter with ``begin()`` at a step's end, leave with ``finish()`` at the next one's."""

    supports_higher_order_operators = True

    def __init__(self, where: Any, roots: Sequence[torch.nn.Module] = ()) -> None:
        super().__init__()
        self.cells = CellWatch(roots)
        self._where = where  # () -> "forward", "backward", "backward with graph" or "elsewhere"
        self.forwards = 0
        self.forward = 0
        self.backward = 0
        self.recomputed = 0
        self.by_type: dict[str, int] = {}
        self.recurrent: dict[str, int] = {}
        self.uncounted: set[str] = set()
        self.operators = OperatorWatch()
        self.exchanges = ExchangeCount()

    def begin(self) -> None:
        self._stance = _eager()
        self.cells.begin()
        self.__enter__()
        _counting.append(self)

    def finish(self) -> None:
        _counting.remove(self)
        self.__exit__(None, None, None)
        self.cells.finish()
        if self._stance is not None:
            self._stance.__exit__(None, None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(not issubclass(kind, torch.nn.Parameter) and kind is not torch.Tensor for kind in types):
            return NotImplemented  # a tensor subclass: let it unwrap itself, its inner operators come back here
        if isinstance(func, torch._ops.HigherOrderOperator):
            self.uncounted.add(str(func))
            return func(*args, **kwargs)
        packet = func._overloadpacket
        if packet not in _formulas and func is not torch.ops.prim.device.default:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        began = time.perf_counter()
        result = func(*args, **kwargs)
        if packet in _formulas:
            self._add(_formulas[packet](*args, **kwargs, out_val=result), packet.__name__, args, result)
        else:
            self.exchanges.see(func, (*args, *kwargs.values()), result)
            self.operators.see(packet.__name__, args, result, self._where(), time.perf_counter() - began)
        return result

    def _add(self, flops: int, name: str, args: Any, result: Any) -> None:
        where = self._where()
        if where == "elsewhere":
            return  # an optimizer's own products (Muon), metrics, validation: not the model's work on this batch
        if where == "forward":
            self.forward += flops
        elif where == "backward" and torch.is_grad_enabled():
            self.recomputed += flops  # backward formulas run without gradients; only a recomputed forward has them
        else:
            self.backward += flops
        kind = _arithmetic(name, args)
        if where == "forward":
            self.operators.see_product(name, args, result, kind)
        self.by_type[kind] = self.by_type.get(kind, 0) + flops
        if "_rnn" in name:
            self.recurrent[kind] = self.recurrent.get(kind, 0) + flops
            self.operators.hidden_flops += flops if where == "forward" else 0

    def seen(self) -> SeenFlops:
        return SeenFlops(
            model=self.forward + self.backward,
            hardware=self.forward + self.backward + self.recomputed,
            forward=self.forward,
            forwards=self.forwards,
            by_type=dict(self.by_type),
            recurrent=dict(self.recurrent),
            uncounted=sorted(self.uncounted),
        )


def _eager() -> Any:
    """Compiled code hides its operators: run this one step uncompiled."""
    if not something_was_compiled() or not can_run_uncompiled():
        return None
    stance = torch.compiler.set_stance("force_eager")
    stance.__enter__()
    return stance


def can_run_uncompiled() -> bool:
    """Whether this torch can run a compiled model without its compiled code, for a while (since 2.6)."""
    return hasattr(torch.compiler, "set_stance")


def compiled_frames() -> int:
    """Frames that torch.compile has compiled so far: one again for every shape that it cannot generalise to."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["frames"].get("ok", 0)) if dynamo is not None else 0


def something_was_compiled() -> bool:
    """Whether torch.compile has captured anything so far (optimizers import dynamo: that alone says nothing)."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def _arithmetic(name: str, args: Any) -> str:
    """The arithmetic that an operator uses: its operands' type, and TF32 for fp32 on a GPU where it is allowed."""
    operand = next(_floats(args), None)
    if operand is None:
        return "unknown"
    short = _SHORT.get(operand.dtype, str(operand.dtype).removeprefix("torch."))
    if short.startswith("float8"):
        return "fp8"
    # Only a tensor that is on a GPU may make us ask CUDA anything: asking starts it.
    if short != "fp32" or not operand.is_cuda:
        return short
    return "tf32" if _allows_tf32(name, operand.device) else "fp32"


_SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}


def _floats(args: Any) -> Iterator[torch.Tensor]:
    for arg in args:
        for tensor in arg if isinstance(arg, (list, tuple)) else (arg,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                yield tensor


def _allows_tf32(name: str, device: torch.device) -> bool:
    if torch.cuda.get_device_capability(device)[0] < 8:
        return False
    cudnn: Any = torch.backends.cudnn
    by_cudnn = "convolution" in name or "cudnn_rnn" in name
    try:
        return bool(cudnn.allow_tf32 if by_cudnn else torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # the script mixes torch's two ways to say it: ask the newer one
        part = (cudnn.rnn if "rnn" in name else cudnn.conv) if by_cudnn else torch.backends.cuda.matmul
        return str(part.fp32_precision) == "tf32"
