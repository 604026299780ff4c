"""The fastest matrix product that this device reaches now: the yardstick for MFU where the catalogue has no peak."""

from __future__ import annotations

import time

import torch

__all__ = ["matmul_ceiling_tflops"]

_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}


def matmul_ceiling_tflops(device: torch.device, arithmetic: str) -> float | None:
    """Best of five square products, large enough to fill the device and to last under a second on two cores."""
    dtype = _DTYPES.get(arithmetic)
    if dtype is None:
        return None
    size = 8192 if device.type == "cuda" else 1024
    with torch.no_grad():
        left = torch.randn(size, size, device=device).to(dtype)
        right = torch.randn(size, size, device=device).to(dtype)
        best_s = min(_seconds(left, right) for _ in range(5 + 1))
    return 2 * size**3 / best_s / 1e12


def _seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    on_gpu = left.is_cuda
    if on_gpu:
        torch.cuda.synchronize(left.device)
    began = time.perf_counter()
    left @ right
    if on_gpu:
        torch.cuda.synchronize(left.device)
    return time.perf_counter() - began
