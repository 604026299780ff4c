"""cuDNN autotune: measure the convolution algorithms once, use the fastest; only where input sizes stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.new_shapes import autotuner_empties_the_cache, described, new_shapes_ms
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import has_convolutions, on_gpu, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, likely_saved, share_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.engine.probed import Probed
    from vivace.records.measurement import Measurement

_AT_MOST = 0.3  # of the convolutions' time; what the heuristic loses is usually less
# Measured in steps: 1.006, 1.01, 1.105, 1.166 and 0.93 times as fast (engine/gains.csv).
_SAVED = Shares(0.05, -0.05, 0.25)  # of the convolutions' time
_MOST_SHAPES = 3


class CudnnBenchmark(Change):
    """``off`` is for input sizes that keep changing."""

    switchable = True

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument not in (None, "on", "off"):
            raise ValueError(f"{argument!r} is not one of on, off")

    def flags(self) -> None:
        if self.argument == "off":
            torch.backends.cudnn.benchmark = False
            self.applied("cuDNN picks its algorithms by a rule, without measuring")
            return
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
    return _to_switch_off(m, None) or _to_switch_on(m)


def find_probed(m: Measurement, probed: Probed) -> Found | None:
    return _to_switch_off(m, probed) or _to_switch_on(m)


def _to_switch_off(m: Measurement, probed: Probed | None) -> Found | None:
    """Where shapes keep changing, it measures again and again; what that costs only a differential run tells."""
    if not on_gpu(m) or not autotuner_empties_the_cache(m):
        return None
    cost = new_shapes_ms(m, probed)
    if cost < 0.03 * step_ms(m):
        return None
    return Found(
        exposed_ms=cost,
        likely=share_saved(cost, Shares(0.8, 0.3, 1.0)),
        evidence={
            "cudnn_benchmark": True,
            "new_shapes": m.inputs.new,
            "steps": sum(m.inputs.repeats),
            "driver_allocations": m.allocator.device_allocs if m.allocator is not None else None,
        },
        says=(
            f"{described(m)}: for each, cuDNN measures its algorithms again and torch gives all cached memory back "
            f"before; up to {cost:.1f} ms per step"
        ),
        setting="cudnn_benchmark=off",
        by_hand=lines("off"),
    )


def _to_switch_on(m: Measurement) -> Found | None:
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


def lines(choice: str) -> str:
    return f"torch.backends.cudnn.benchmark = {choice != 'off'}"


PRACTICE = Practice(
    name="cudnn_benchmark",
    title="cuDNN autotuner",
    family="kernels",
    risk="rounding",
    source="R10, R17: cudnn.benchmark=True for convnets with constant input sizes.",
    why=(
        "cuDNN has several algorithms per convolution. With the autotuner it times them at the first step of each "
        "input size and keeps the best. With sizes that change it times them again and again, and torch empties the "
        "allocator's cache each time: then leave it off."
    ),
    by_hand="torch.backends.cudnn.benchmark = True",
    find=find,
    find_probed=find_probed,
    change=CudnnBenchmark,
    argument="on | off",
    lines=lines,
    for_new_shapes=True,
    order=10,
)
