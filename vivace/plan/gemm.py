"""Time of a matrix product: tiles, waves, depth, and the memory roof.

A product of M x N x K is cut in tiles, each tile is one block on one multiprocessor, and blocks run in
waves over all of them: a last wave that is nearly empty costs a whole wave. Short K pays the start and the
end of the pipeline. Libraries choose among tile shapes and split K when there are too few tiles; so does
this model. Pure arithmetic, cached.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from vivace.plan.machine import Gpu

__all__ = ["alignment_share", "arithmetic_intensity", "gemm_seconds", "tile_efficiency", "wave_efficiency"]

# Tile shapes that cuBLAS and CUTLASS use for tensor cores, with the share of the best rate that each can
# reach (smaller tiles reuse less from shared memory). NVIDIA "Matrix Multiplication Background", tile table.
TILES: tuple[tuple[int, int, float], ...] = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.93),
    (128, 64, 0.76),
    (64, 128, 0.76),
    (64, 64, 0.6),
)
# Rate of one A100 multiprocessor, for which ``overhead_k`` (data/constants.toml [gemm]) was fitted.
REFERENCE_FLOPS_PER_SM = 312e12 * 0.777 / 108
SPLITS = (1, 2, 4, 8)


def arithmetic_intensity(m: int, n: int, k: int, bytes_per_element: float = 2.0) -> float:
    """FLOPs per byte moved when each operand is read once and the result written once."""
    return 2.0 * m * n * k / (bytes_per_element * (m * k + n * k + m * n))


def wave_efficiency(m: int, n: int, sms: int, tile: tuple[int, int] = (256, 128)) -> float:
    """Share of multiprocessors that work, over all waves: 117 tiles on 108 make two waves, 54 %."""
    tiles = ceil(m / tile[0]) * ceil(n / tile[1])
    return tiles / (ceil(tiles / sms) * sms)


def tile_efficiency(m: int, n: int, tile: tuple[int, int] = (256, 128)) -> float:
    """Share of the tiles' area that the result fills."""
    return m * n / (ceil(m / tile[0]) * tile[0] * ceil(n / tile[1]) * tile[1])


def alignment_share(n: int, k: int, bytes_per_element: int = 2) -> float:
    """Share of the rate left when rows do not start on 16 bytes: a vocabulary of 50,257 halves its product.

    NVIDIA "Matrix Multiplication Background": tensor cores want multiples of 16 bytes; cuBLAS falls back
    to kernels with narrower loads otherwise.
    """
    aligned = min(_power_of_two_in(n), _power_of_two_in(k)) * bytes_per_element
    return 1.0 if aligned >= 16 else {8: 0.85, 4: 0.7}.get(aligned, 0.5)


def _power_of_two_in(number: int) -> int:
    return number & -number


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
) -> float:
    """Seconds of ``batch`` products of M x N x K in the compute type ``dtype``."""
    bytes_per_element = {"fp32": 4, "tf32": 4, "fp8": 1}.get(dtype, 2)
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
    moved = batch * bytes_per_element * (m * k + n * k + m * n)
    best /= alignment_share(n, k, bytes_per_element)
    return max(best, moved / gpu.stream_rate) + gap_us * 1e-6
