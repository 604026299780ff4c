"""cuDNN autotune: measure the convolution algorithms once, use the fastest; only where input sizes stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import has_convolutions, on_gpu, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, likely_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_AT_MOST = 0.3  # of the convolutions' time; what the heuristic loses is usually less
# Measured in steps: 1.006, 1.01, 1.105, 1.166 and 0.93 times as fast (engine/gains.csv).
_SAVED = Shares(0.05, -0.05, 0.25)  # of the convolutions' time
_MOST_SHAPES = 3


class CudnnBenchmark(Change):
    def flags(self) -> None:
        if not (torch.cuda.is_available() and torch.backends.cudnn.is_available()):
            raise NotApplicable("there is no cuDNN")
        if torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic:
            if self.done:  # switched on before the script said so
                torch.backends.cudnn.benchmark = False
                self.done = None
            raise NotApplicable("the script asks for deterministic algorithms")
        torch.backends.cudnn.benchmark = True
        self.applied("cuDNN measures its algorithms")


def find(m: Measurement) -> Found | None:
    flags = m.origin.flags
    if not on_gpu(m) or not has_convolutions(m) or flags.get("cudnn_benchmark") or flags.get("cudnn_deterministic"):
        return None
    if m.input_shapes is None or m.input_shapes > _MOST_SHAPES:
        return None
    convolution = role_ms(m, "convolution", "layout")
    saved = _AT_MOST * convolution
    if saved < 0.03 * step_ms(m):
        return None
    return Found(
        exposed_ms=saved,
        likely=likely_saved(m, *(Less(device_ms=share * convolution) for share in _SAVED)),
        evidence={"convolution_ms": round(convolution, 3), "input_shapes": m.input_shapes, "cudnn_benchmark": False},
        says=f"cuDNN picks algorithms by a rule of thumb; sizes stay the same, so it can measure: up to {saved:.1f} ms",
    )


PRACTICE = Practice(
    name="cudnn_benchmark",
    title="cuDNN autotuner",
    family="kernels",
    risk="rounding",
    source="R10, R17: cudnn.benchmark=True for convnets with constant input sizes.",
    why=(
        "cuDNN has several algorithms per convolution. With the autotuner it times them at the first step of each "
        "input size and keeps the best. With sizes that change it would time them again and again: then leave it off."
    ),
    by_hand="torch.backends.cudnn.benchmark = True",
    find=find,
    change=CudnnBenchmark,
    order=10,
)
