"""The parts of a running training that a practice can be switched on and off for; and torch's global switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Flags", "Live"]

_KERNELS = ("flash", "mem_efficient", "cudnn", "math")


@dataclass(frozen=True)
class Live:
    roots: list[torch.nn.Module]
    optimizers: list[Any]


class Flags:
    """What the script has set, to go back to before each arm."""

    def __init__(self) -> None:
        self.precision = torch.get_float32_matmul_precision()
        self.cudnn_tf32 = torch.backends.cudnn.allow_tf32
        self.benchmark = torch.backends.cudnn.benchmark
        self.threads = torch.get_num_threads()
        self.onednn = torch.backends.mkldnn.enabled
        self.kernels = {name: _is_on(name) for name in _KERNELS}

    def put_back(self) -> None:
        now = Flags()
        if now.precision != self.precision:
            torch.set_float32_matmul_precision(self.precision)
        torch.backends.cudnn.allow_tf32 = self.cudnn_tf32
        torch.backends.cudnn.benchmark = self.benchmark
        if now.threads != self.threads:
            torch.set_num_threads(self.threads)
        if now.onednn != self.onednn:
            torch.backends.mkldnn.set_flags(self.onednn)
        for name, on in self.kernels.items():
            if now.kernels[name] != on:
                getattr(torch.backends.cuda, f"enable_{name}_sdp")(on)


def _is_on(kernels: str) -> bool:
    asked = getattr(torch.backends.cuda, f"{kernels}_sdp_enabled", None)
    return asked is not None and bool(asked())
