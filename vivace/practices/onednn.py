"""oneDNN on: the CPU's fast convolutions, where a script switched them off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, role_ms, step_ms
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.switching.live import Live
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05


class OneDnn(Change):
    """Before the first forward: scripts switch it off after they imported torch."""

    switchable = True

    def switch(self, on: bool, live: Live) -> None:
        if on:
            self.model(live.roots[0])

    def model(self, root: torch.nn.Module) -> None:
        if not torch.backends.mkldnn.is_available():
            raise NotApplicable("this torch is built without oneDNN")
        if torch.backends.mkldnn.enabled:
            raise NotApplicable("oneDNN is not switched off")
        torch.backends.mkldnn.set_flags(True)
        self.applied("oneDNN is on")


def find(m: Measurement) -> Found | None:
    saved = role_ms(m, "convolution")
    if on_gpu(m) or m.origin.flags.get("onednn") is not False or saved < _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=saved,
        evidence={"onednn": False, "convolution_ms": round(saved, 3)},
        says=f"convolutions take {saved:.1f} ms of a step without oneDNN, whose kernels use the CPU's vector units",
    )


PRACTICE = Practice(
    name="onednn",
    title="oneDNN kernels on the CPU",
    family="cpu",
    same_arithmetic=False,
    risk="rounding",
    source="PyTorch backends: torch.backends.mkldnn. (The layout that oneDNN likes is the practice channels_last.)",
    why=(
        "On a CPU torch hands convolutions to oneDNN, which has kernels for each generation of vector units and keeps "
        "weights in the order they want. With torch.backends.mkldnn switched off torch falls back to plain ones."
    ),
    by_hand="torch.backends.mkldnn.enabled = True   # remove the line that says False",
    find=find,
    change=OneDnn,
    order=10,
)
