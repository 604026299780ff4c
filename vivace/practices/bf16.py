"""bf16 autocast: products in 16 bits on tensor cores, weights and optimizer in fp32, no scaler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from vivace.practices.engine.autocasts import StandIn, dtype_around, of_forward
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.cpu_products import bf16_ratio, flop_per_product
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import (
    MEMORY_BOUND,
    PRODUCTS,
    arithmetic_share,
    capability,
    compute_ms,
    on_gpu,
    peak,
    products_left_ms,
    products_ms,
    role_ms,
    step_ms,
)
from vivace.practices.engine.step_model import Less, Shares, likely_saved, share_saved, step_model
from vivace.practices.engine.tensors import map_tensors
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.switching.live import Live
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05


class Autocast(Change):
    """Around every root's forward; what comes out is fp32 again, so that the script's own arithmetic stays as it is."""

    switchable = True

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.around_this_call = False
        self.met: WeakSet[torch.nn.Module] = WeakSet()
        self.taken_over: list[Any] = []  # decorators, which may be those of a class with several roots

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16

    def forward(self, root: torch.nn.Module) -> AbstractContextManager[Any] | None:
        device = next(root.parameters()).device.type
        self.around_this_call = False
        if all(p.dtype is not torch.float32 for p in root.parameters()):
            if any(p.requires_grad for p in root.parameters()):
                raise NotApplicable(f"{type(root).__name__} has no fp32 weights")
            return None  # a frozen model beside the one that is trained
        around = dtype_around(device)
        _refuse_mixed_precision(around)
        self._take_over_decorator(root, device)
        self.around_this_call = True
        instead = ", in place of the script's float32" if around is torch.float32 else ""
        self.applied(f"{_name(self.dtype)} autocast around {type(root).__name__}{instead}")
        return StandIn(device, self.dtype)

    def _take_over_decorator(self, root: torch.nn.Module, device: str) -> None:
        """One on the root's own forward is entered inside ours and would win. That object itself is changed:
        torch.compile takes the dtype from it too."""
        if root in self.met:
            return
        decorator = of_forward(root, device)
        if decorator is not None and decorator not in self.taken_over:
            if decorator._enabled:
                _refuse_mixed_precision(decorator.fast_dtype)
            elif not _has_layers(root):
                raise NotApplicable(f"{type(root).__name__} switches autocast off for itself")
            decorator._enabled, decorator.fast_dtype = True, self.dtype
            self.taken_over.append(decorator)
        self.met.add(root)

    def switch(self, on: bool, live: Live) -> None:
        if on and any(of_forward(root, next(root.parameters()).device.type) is not None for root in live.roots):
            raise NotApplicable("autocast decorates its forward: that is changed for good, in a process of its own")

    def outputs(self, value: Any) -> Any:
        if not self.around_this_call:  # the script's own autocast: its outputs are as it wants them
            return value
        if torch.is_grad_enabled() and _holds_a_loss(value):  # logits beside it may be gigabytes that nobody reads
            return value
        return map_tensors(value, lambda t: t.float() if t.dtype is self.dtype else t)


def _refuse_mixed_precision(dtype: torch.dtype | None) -> None:
    """Of the script's own autocast; None or float32 is no mixed precision."""
    if dtype is not None and dtype is not torch.float32:
        raise NotApplicable(f"the script already runs this model under {_name(dtype)} autocast")


def _has_layers(root: torch.nn.Module) -> bool:
    """A network has. A loss with parameters of its own has not, and it is switched off there for a reason."""
    return any(next(child.parameters(), None) is not None for child in root.children())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _holds_a_loss(value: Any) -> bool:
    """Whether a model returned its own loss: a scalar in fp32 that a backward can start from."""
    found = []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor.dim() == 0 and tensor.dtype is torch.float32 and tensor.requires_grad)
        return tensor

    map_tensors(value, look)
    return any(found) and len(found) > 1


# TF32 reaches less of its peak than bf16: the products of benchmarks/defects/r03 became 2.33 times as fast on an H200,
# where the peaks differ by 2.0.
_BEYOND_PEAKS = 1.25


def saved_by_halving(m: Measurement, arithmetic: str) -> float:
    """Upper bound: products faster by the ratio of the peaks and a little more, everything else with half the bytes."""
    saved = 0.0
    for now, ms in products_ms(m).items():
        old, new = peak(m, now), peak(m, arithmetic)
        faster = _BEYOND_PEAKS * (new / old if old and new else 2.0)
        saved += ms * (1 - 1 / max(1.0, faster)) if now in ("fp32", "tf32") else 0.0
    return saved + role_ms(m, *MEMORY_BOUND) * 0.5


# Of the memory-bound time that half the bytes save (norms and losses stay in fp32), and of the host's time that the
# casts cost. price_gains.csv.
_MEMORY_SAVED = Shares(0.25, 0.0, 0.5)
_HOST_ADDED = Shares(0.2, 0.3, 0.02)
_PRODUCTS_LEFT = Shares(1.0, 1.4, 0.7)  # over what large ones would take
_NOT_ARITHMETIC = 0.75  # of what memory and latency take in products


def likely_by_halving(m: Measurement, arithmetic: str) -> Saved:
    """What 16-bit products and activations should save."""
    if not on_gpu(m):
        return _likely_on_a_cpu(m, arithmetic)
    now = {kind: ms for kind, ms in products_ms(m).items() if kind in ("fp32", "tf32")}
    left = sum(products_left_ms(m, kind, arithmetic, _NOT_ARITHMETIC) for kind in now)
    memory, host = role_ms(m, *MEMORY_BOUND), step_model(m).host_ms

    def less(share: float, added: float, longer: float) -> Less:
        return Less(host_ms=-added * host, device_ms=sum(now.values()) - longer * left + share * memory)

    return likely_saved(m, *map(less, _MEMORY_SAVED, _HOST_ADDED, _PRODUCTS_LEFT))


# Around the ratio of that size: 0.74 to 1.74 at 67 MFLOP, 1.11 to 1.31 at 17, 0.90 to 0.93 at 4 (bf16_cpu_sizes.csv).
_CPU_RANGE = Shares(1.0, 0.7, 1.4)


def _likely_on_a_cpu(m: Measurement, arithmetic: str) -> Saved:
    flop, computing = flop_per_product(m), compute_ms(m)
    if flop is None:  # only a trial tells
        return share_saved(saved_by_halving(m, arithmetic), Shares(0.5, -1.0, 1.0))
    return Saved(*(computing * (1 - 1 / (bf16_ratio(flop) * factor)) for factor in _CPU_RANGE))


def find(m: Measurement) -> Found | None:
    share = arithmetic_share(m, "fp32", "tf32")
    if m.structure.mixed_precision or share < 0.5:
        return None
    if on_gpu(m) and capability(m) < (8, 0):
        return None
    if not on_gpu(m) and not (m.machine.cpu.has_bf16 or m.machine.cpu.has_amx):
        return None
    saved = saved_by_halving(m, "bf16")
    if saved < _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=saved,
        likely=likely_by_halving(m, "bf16"),
        evidence={
            "fp32_or_tf32_share_of_flops": round(share, 3),
            "products_ms": round(role_ms(m, *PRODUCTS), 3),
            "memory_bound_ms": round(role_ms(m, *MEMORY_BOUND), 3),
        },
        says=f"{share:.0%} of the arithmetic runs in 32-bit formats; bf16 saves at most {saved:.1f} ms of a step",
        by_hand=None if on_gpu(m) else PRACTICE.by_hand.replace('"cuda"', '"cpu"'),
    )


def worth_trying(m: Measurement) -> tuple[str, ...]:
    """On a CPU only a trial tells: with bf16 units it may be twice as fast, without them fifteen times slower."""
    return ("bf16",) if not on_gpu(m) and not m.structure.mixed_precision and arithmetic_share(m, "fp32") > 0.5 else ()


PRACTICE = Practice(
    name="bf16",
    title="bf16 mixed precision (autocast)",
    family="precision",
    risk="rounding",
    source="DLO-JZ, mixed precision: FP32 master weights, 16-bit products; bf16 needs no scaler. PyTorch AMP recipe.",
    why=(
        "Tensor cores multiply bf16 at twice the rate of TF32 and many times that of fp32, and activations take half "
        "the memory traffic. The exponent is that of fp32, so no loss scaling is needed. Ampere and newer; CPUs with "
        "AVX512-BF16 or AMX. Without such units bf16 is many times slower."
    ),
    by_hand=(
        'with torch.autocast("cuda", dtype=torch.bfloat16):\n'
        "    output = model(inputs)\n"
        "    loss = criterion(output, targets)\n"
        "loss.backward()  # outside"
    ),
    number_format="bf16",
    find=find,
    change=Autocast,
    excludes=("fp16", "pure_bf16"),
    order=40,
    worth_trying=worth_trying,
)
