"""In how many bits the products of a profiled step ran, by the names of their kernels.

Names tell the operands' type: ``sm90_xmma_gemm_bf16bf16_bf16f32_f32`` multiplies bf16 and adds up in fp32,
``sm90_xmma_gemm_f32f32_tf32f32_f32`` multiplies fp32 as TF32. A name that says 16 bits anywhere counts as such; one
that says nothing (Triton's, gemv) counts as unnamed.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["UNNAMED", "products_ms", "width"]

UNNAMED = "unnamed"
# In lower case. m16n8k16 (16816) is a shape of 16-bit tensor cores only; cuBLAS's nvjet begins with the operands' type:
# h is half, t is bfloat16, s is single.
_BITS_16 = (
    "f16", "fp16", "bfloat16", "half", "16816", "h884", "h1688", "hgemm", "nvjet_h", "nvjet_t", "flash_fwd",
    "flash_bwd",
)  # fmt: skip
_BITS_32 = ("tf32", "sgemm", "f32f32_f32f32", "scudnn", "cutlassf_f32", "cutlassb_f32", "nvjet_s", "tensorop_s1688")


def width(name: str) -> str:
    """``16``, ``32`` or ``unnamed``."""
    name = name.lower()
    if any(part in name for part in _BITS_16):
        return "16"
    return "32" if any(part in name for part in _BITS_32) else UNNAMED


def products_ms(kernels: Iterable[tuple[str, float]], steps: int) -> dict[str, float]:
    """Milliseconds per step by width, of ``(name, milliseconds)`` of matrix products, convolutions and attention."""
    sums: dict[str, float] = {}
    for name, ms in kernels:
        sums[width(name)] = sums.get(width(name), 0.0) + ms / steps
    return sums
