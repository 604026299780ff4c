"""Seconds of the products of a linear layer, with the fitted constants of ``[gemm]``.

Pure arithmetic; called by ``layer.py`` and ``head.py``.
"""

from __future__ import annotations

from vivace.plan.facts.constants import constants
from vivace.plan.machines.machine import Gpu
from vivace.plan.time.gemm import gemm_seconds

__all__ = ["linear_seconds", "product_seconds"]


def product_seconds(gpu: Gpu, dtype: str, m: int, n: int, k: int, batch: int = 1, transposed: bool = False) -> float:
    values = constants("gemm")
    return gemm_seconds(gpu, dtype, m, n, k, batch, values["overhead_k"], values["gap_us"], transposed=transposed)


def linear_seconds(gpu: Gpu, dtype: str, tokens: int, width_out: int, width_in: int) -> tuple[float, float]:
    """Forward, and backward (gradient of the input and of the weights)."""
    forward = product_seconds(gpu, dtype, tokens, width_out, width_in)
    of_inputs = product_seconds(gpu, dtype, tokens, width_in, width_out)
    of_weights = product_seconds(gpu, dtype, width_out, width_in, tokens, transposed=True)
    return forward, of_inputs + of_weights
