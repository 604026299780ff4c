"""Time of a matrix product: tiles, waves, depth, and the memory roof.

A product of M x N x K is cut in tiles, each tile is one block on one multiprocessor, and blocks run in
waves over all of them: a last wave that is nearly empty costs a whole wave. Short K pays the start and the
end of the pipeline. Libraries choose among tile shapes and split K when there are too few tiles; so does
this model. Pure arithmetic, cached.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from vivace.hardware.products import (
    TILES,
    alignment_share,
    arithmetic_intensity,
    bytes_per_element,
    tile_efficiency,
    wave_efficiency,
)
from vivace.plan.machines.machine import Gpu

__all__ = ["TILES", "alignment_share", "arithmetic_intensity", "gemm_seconds", "tile_efficiency", "wave_efficiency"]

# Rate of one A100 multiprocessor, for which ``overhead_k`` (data/constants.toml [gemm]) was fitted.
REFERENCE_FLOPS_PER_SM = 312e12 * 0.777 / 108
SPLITS = (1, 2, 4, 8)


@lru_cache(maxsize=200_000)
def gemm_seconds(
    gpu: Gpu,
    dtype: str,
    m: int,
    n: int,
    k: int,
    batch: int = 1,
    overhead_k: float = 160.0,
    gap_us: float = 2.0,
    convolution: bool = False,
    transposed: bool = False,
) -> float:
    """Seconds of ``batch`` products of M x N x K in the compute type ``dtype``, or of convolutions that equal them.

    ``transposed``: the first operand lies in memory as K x M, as the gradient of a linear layer's output does when that
    of its weights is computed: its rows are M long, not K.
    """
    element_bytes = bytes_per_element(dtype)
    per_sm = gpu.gemm_rate(dtype) / gpu.sms
    # The prologue takes time, not depth: slower units lose less depth in it. Faster ones overlap it with
    # other tiles.
    overhead_k *= min(1.0, per_sm / REFERENCE_FLOPS_PER_SM)
    best = float("inf")
    for tile_m, tile_n, share in TILES:
        tiles = ceil(m / tile_m) * ceil(n / tile_n) * batch
        for split in SPLITS if tiles < 2 * gpu.sms else (1,):
            waves = ceil(tiles * split / gpu.sms)
            depth = k / split + overhead_k * (1.0 if split == 1 else 1.5)
            best = min(best, waves * 2.0 * tile_m * tile_n * depth / (per_sm * share))
    moved = batch * element_bytes * (m * k + n * k + m * n)
    hopper = gpu.family == "hopper" and not convolution
    best /= alignment_share(n, m if transposed else k, element_bytes, hopper=hopper)
    return max(best, moved / gpu.stream_rate) + gap_us * 1e-6
