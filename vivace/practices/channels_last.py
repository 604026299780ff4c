"""channels_last: the memory order that tensor-core convolutions (and oneDNN) want."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import has_convolutions, on_gpu, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, likely_saved, share_saved
from vivace.practices.engine.tensors import map_tensors
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.switching.live import Live
    from vivace.records.measurement import Measurement

# Convolutions, the layers between them and layout kernels at most halve: ResNet-50 in bf16 on one H200 gains 1.92×
# (benchmarks/data/h200_reference.csv).
_AT_MOST = 0.5
# Besides the transposes, norms gain most: 1.39 → 0.64 ms in bf16, with convolutions as fast as before (convnet in
# price_measurements.jsonl). ResNet-50 in tf32 122 → 91 ms (tune_h200_trials.csv), R6 19.4 → 8.5 (planted_defects.csv).
_NORMS_SAVED = Shares(0.5, 0.0, 0.7)
_OTHERS_SAVED = Shares(0.05, -0.1, 0.5)
_CPU_SAVED = Shares(0.15, 0.0, 0.5)
_TRANSPOSES = re.compile("nchwToNhwc|nhwcToNchw")
_US_PER_LAUNCH = 9.0  # of cuDNN's own; convnet in price_measurements.jsonl
_AROUND_CONVOLUTIONS = ("convolution", "norm", "pooling", "elementwise")


class ChannelsLast(Change):
    switchable = True

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.changed: WeakSet[torch.nn.Module] = WeakSet()

    def model(self, root: torch.nn.Module) -> None:
        if not any(isinstance(module, torch.nn.Conv2d) for module in root.modules()):
            raise NotApplicable(f"{type(root).__name__} has no 2-D convolution")
        if any(torch.nn.parameter.is_lazy(tensor) for tensor in (*root.parameters(), *root.buffers())):
            raise NotApplicable(f"{type(root).__name__} has layers that get their sizes with the first batch")
        root._apply(_reordered)  # not root.to: that one fails where there are 3-D convolutions, too
        self.changed.add(root)
        self.applied(f"weights and inputs of {type(root).__name__}")

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if root not in self.changed and getattr(root, "module", None) not in self.changed:  # itself, or wrapped
            return args, kwargs
        return map_tensors(args, _reordered), map_tensors(kwargs, _reordered)

    def switch(self, on: bool, live: Live) -> None:
        """What an optimizer keeps of a weight is reordered with it: mixed orders are slow."""
        if on and not self.changed:
            for root in live.roots:
                self.model(root)
        order = _reordered if on else _as_usual
        for root in self.changed:
            root._apply(order)
        for optimizer in live.optimizers:
            for kept in optimizer.state.values():
                kept.update({name: order(value) for name, value in kept.items() if isinstance(value, torch.Tensor)})


def _as_usual(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous() if tensor.dim() == 4 and tensor.is_floating_point() else tensor


def _reordered(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() != 4 or not tensor.is_floating_point():
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)


def find(m: Measurement) -> Found | None:
    share = m.structure.conv_weights_channels_last
    if not has_convolutions(m) or share is None or share > 0.5:
        return None
    layout = role_ms(m, "layout")
    around = role_ms(m, *_AROUND_CONVOLUTIONS)
    saved = layout + _AT_MOST * around
    if saved < 0.05 * step_ms(m):
        return None
    device = "the GPU" if on_gpu(m) else "oneDNN"
    return Found(
        exposed_ms=saved,
        likely=_likely(m, layout, around),
        evidence={
            "conv_weights_channels_last": share,
            "layout_kernels_ms": round(layout, 3),
            "convolution_ms": round(role_ms(m, "convolution"), 3),
        },
        says=f"convolutions run in NCHW order; {device} wants NHWC: at most {saved:.1f} ms of a step",
    )


def _likely(m: Measurement, layout: float, around: float) -> Saved:
    """Transposes are launched too: on a host that is the limit, that is what they cost."""
    if not on_gpu(m) or m.profile is None:
        return share_saved(around, _CPU_SAVED)
    launches = sum(kernel.calls_per_step for kernel in m.profile.top if _TRANSPOSES.search(kernel.name))
    norms = role_ms(m, "norm")

    def less(of_norms: float, of_others: float) -> Less:
        saved = layout + of_norms * norms + of_others * (around - norms)
        return Less(host_ms=_US_PER_LAUNCH / 1e3 * launches, device_ms=saved)

    return likely_saved(m, *map(less, _NORMS_SAVED, _OTHERS_SAVED))


PRACTICE = Practice(
    name="channels_last",
    title="channels_last memory format",
    family="kernels",
    risk="rounding",
    source="R6; NVIDIA's convolution checklist: use NHWC to avoid transposes. DLO-JZ TP2.",
    why=(
        "Tensor-core convolutions work on NHWC. From NCHW every convolution pays for transposes, and batch norm and "
        "pooling read strided memory. Shapes stay the same, only strides change: (10,3,32,32) goes from "
        "(3072,1024,32,1) to (3072,1,96,3). Best together with 16-bit arithmetic; grouped convolutions may lose."
    ),
    by_hand=(
        "model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(device, memory_format=torch.channels_last)"
    ),
    find=find,
    change=ChannelsLast,
    order=30,
)
