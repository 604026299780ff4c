"""fp8 products for linear layers: torchao's where it is installed, else torch's own. Hopper and newer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import capability, peak, role_ms, step_ms
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_MULTIPLE = 16  # what fp8 tensor cores ask of both dimensions
_LARGE = 2048  # below, casting to fp8 costs what the product wins
_SMALLEST_SHARE = 0.05


class Fp8(Change):
    """The linear layers are swapped for ones that hold the same parameters under the same names."""

    def model(self, root: torch.nn.Module) -> None:
        device = next(root.parameters()).device
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
            raise NotApplicable("fp8 products need a GPU of compute capability 9.0 or newer (Hopper)")
        if not any(_is_suitable(module) for module in root.modules()):
            raise NotApplicable(f"{type(root).__name__} has no linear layer with both sizes multiples of {_MULTIPLE}")
        if isinstance(root, torch.nn.Linear):
            raise NotApplicable("the model is a single layer")
        count = sum(_is_suitable(module) for module in root.modules())
        by = convert(root)
        self.applied(f"{count} linear layers of {type(root).__name__}, by {by}")


def convert(root: torch.nn.Module) -> str:
    """Returns whose layers they are now."""
    try:
        torchao = importlib.import_module("torchao.float8")
    except ImportError:
        return _convert_by_torch(root)
    torchao.convert_to_float8_training(root, module_filter_fn=lambda module, _name: _is_suitable(module))
    return "torchao"


def _convert_by_torch(root: torch.nn.Module) -> str:
    from vivace.practices.graphs.fp8_linear import Fp8Linear, can_multiply

    if not can_multiply():
        raise NotApplicable("this torch has no fp8 products, and torchao is not installed")
    for module in root.modules():
        if _is_suitable(module):
            module.__class__ = Fp8Linear
    return "torch._scaled_mm"


def _is_suitable(module: Any) -> bool:
    return (
        type(module) is torch.nn.Linear  # a layer of another class may use its weights in another way
        and module.in_features % _MULTIPLE == 0
        and module.out_features % _MULTIPLE == 0
    )


def find(m: Measurement) -> Found | None:
    """After bf16: products that are 16-bit today, large in all three sizes."""
    if capability(m) < (9, 0) or m.flops is None or "fp8" in m.flops.by_type:
        return None
    share = sum(layer.share for layer in m.structure.layers if _is_large(layer))
    bf16, fp8 = peak(m, "bf16"), peak(m, "fp8")
    saved = share * role_ms(m, "matmul") * (1 - (bf16 / fp8 if bf16 and fp8 else 0.5))
    if saved < _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=saved,
        evidence={"large_products_share_of_flops": round(share, 3), "matmul_ms": round(role_ms(m, "matmul"), 3)},
        says=(
            f"{share:.0%} of the products are large enough for fp8, at twice the rate of bf16: at most "
            f"{saved:.1f} ms per step, and only together with compile"
        ),
    )


def _is_large(layer: Any) -> bool:
    sizes = (layer.m, layer.n, layer.k)
    return (
        layer.kind == "matmul"
        and layer.arithmetic in ("bf16", "fp16")
        and all(size >= _LARGE and size % _MULTIPLE == 0 for size in sizes)
    )


PRACTICE = Practice(
    name="fp8",
    title="fp8 linear layers",
    family="precision",
    risk="algorithmic",
    source="DLO-JZ, precision: FP8 E4M3 for weights and activations, E5M2 for gradients. torchao float8 training.",
    why=(
        "Hopper tensor cores multiply fp8 at twice the rate of bf16. Each product first finds the largest value of "
        "both matrices and casts them, which costs memory traffic: it pays for large layers only, and only when "
        "compile fuses the casts. Three bits of mantissa change the optimisation; compare loss curves. Users often "
        "find it slower than bf16: measure."
    ),
    by_hand=(
        "from torchao.float8 import convert_to_float8_training\n"
        "convert_to_float8_training(model, module_filter_fn=lambda m, name:\n"
        "    m.in_features % 16 == 0 and m.out_features % 16 == 0)\n"
        "model.compile()"
    ),
    number_format="fp8",
    shows_late=True,
    find=find,
    change=Fp8,
    excludes=("fp16",),
    order=45,
)
