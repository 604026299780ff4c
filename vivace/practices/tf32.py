"""TF32: fp32 products on tensor cores, with 10 bits of mantissa."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import (
    PRODUCTS,
    arithmetic_share,
    capability,
    on_gpu,
    peak,
    products_left_ms,
    products_ms,
    role_ms,
    step_ms,
)
from vivace.practices.engine.step_model import Less, likely_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement


_OFF = 0.4  # of the products' time that is left: how far the rates that are reached differ


class Tf32(Change):
    switchable = True

    def flags(self) -> None:
        if not torch.cuda.is_available():
            raise NotApplicable("there is no GPU")
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        self.applied("fp32 products may use TF32")


def find(m: Measurement) -> Found | None:
    share = arithmetic_share(m, "fp32")
    if not on_gpu(m) or capability(m) < (8, 0) or share == 0:
        return None
    fp32, tf32 = peak(m, "fp32"), peak(m, "tf32")
    saved = products_ms(m).get("fp32", 0.0) * (1 - (fp32 / tf32 if fp32 and tf32 else 0.5))
    if saved < 0.03 * step_ms(m):
        return None
    fp32_ms, left = products_ms(m).get("fp32", 0.0), products_left_ms(m, "fp32", "tf32", not_arithmetic=1.0)
    return Found(
        exposed_ms=saved,
        likely=likely_saved(m, *(Less(device_ms=fp32_ms - left * (1 + more)) for more in (0.0, _OFF, -_OFF))),
        evidence={"fp32_share_of_flops": round(share, 3), "products_ms": round(role_ms(m, *PRODUCTS), 3)},
        says=f"{share:.0%} of the arithmetic runs in full fp32, without tensor cores; at most {saved:.1f} ms are saved",
    )


PRACTICE = Practice(
    name="tf32",
    title="TF32 for fp32 products",
    family="precision",
    risk="rounding",
    source="DLO-JZ: TF32 has the range of FP32 and the precision of FP16, without a change to the code. R17.",
    why=(
        "Ampere and newer GPUs multiply fp32 matrices on tensor cores when TF32 is allowed: about eight times the "
        "rate. PyTorch allows it for convolutions by default, and not for matrix products."
    ),
    by_hand='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
    number_format="tf32",
    find=find,
    change=Tf32,
    order=10,
)
