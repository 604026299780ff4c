"""Occupancy: how many warps of a kernel fit on one multiprocessor (SM) at a time, and what limits them. Pure.

The arithmetic of NVIDIA's ``cuda_occupancy.h``: registers are handed out per warp in units of 256, evenly over four
partitions of an SM; shared memory per block in units of 128 bytes (256 before 8.0), and from 8.0 on the driver keeps
1 KiB of each block for itself. Called by ``vivace hardware occupancy``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from vivace.errors import UserError
from vivace.hardware.generations import Generation

__all__ = ["Occupancy", "occupancy"]

THREADS_PER_WARP = 32
MOST_THREADS_PER_BLOCK = 1024
MOST_REGISTERS_PER_THREAD = 255
_REGISTER_UNIT = 256
_PARTITIONS = 4


@dataclass(frozen=True)
class Occupancy:
    """``blocks`` is the fewest of ``blocks_by_limit``: blocks that each resource has room for."""

    warps_per_block: int
    blocks_by_limit: dict[str, int]
    max_warps: int

    @property
    def blocks(self) -> int:
        return min(self.blocks_by_limit.values())

    @property
    def warps(self) -> int:
        return self.blocks * self.warps_per_block

    @property
    def share(self) -> float:
        return self.warps / self.max_warps

    @property
    def limits(self) -> tuple[str, ...]:
        return tuple(name for name, blocks in self.blocks_by_limit.items() if blocks == self.blocks)


def occupancy(generation: Generation, threads: int, registers: int, shared_kib: float = 0.0) -> Occupancy:
    """Of a kernel with so many threads per block, registers per thread, and KiB of shared memory per block."""
    _check(generation, threads, registers, shared_kib)
    warps = ceil(threads / THREADS_PER_WARP)
    registers_of_warp = _rounded_up(registers * THREADS_PER_WARP, _REGISTER_UNIT)
    warps_in_partition = generation.registers_per_sm // _PARTITIONS // registers_of_warp
    found = {
        "warps": generation.max_warps_per_sm // warps,
        "blocks": generation.max_blocks_per_sm,
        "registers": warps_in_partition * _PARTITIONS // warps,
    }
    if taken := _shared_bytes(generation, shared_kib):
        found["shared memory"] = generation.shared_kib_per_sm * 1024 // taken
    return Occupancy(warps, found, generation.max_warps_per_sm)


def _shared_bytes(generation: Generation, shared_kib: float) -> int:
    assert generation.shared_unit_bytes is not None, "checked"
    return _rounded_up(ceil(shared_kib * 1024) + (generation.reserved_shared_bytes or 0), generation.shared_unit_bytes)


def _rounded_up(value: int, unit: int) -> int:
    return ceil(value / unit) * unit


def _check(generation: Generation, threads: int, registers: int, shared_kib: float) -> None:
    if generation.shared_unit_bytes is None:
        raise UserError("in which units this GPU hands out shared memory is not known", hint="--gpu H100")
    if not 1 <= threads <= MOST_THREADS_PER_BLOCK:
        raise UserError(f"a block has 1 to {MOST_THREADS_PER_BLOCK} threads, not {threads}", hint="--threads 256")
    if not 1 <= registers <= MOST_REGISTERS_PER_THREAD:
        raise UserError(
            f"a thread has 1 to {MOST_REGISTERS_PER_THREAD} registers, not {registers}", hint="--registers 64"
        )
    most = generation.shared_kib_per_sm - (generation.reserved_shared_bytes or 0) / 1024
    if not 0 <= shared_kib <= most:
        raise UserError(f"a block has at most {most:g} KiB of shared memory on this GPU, not {shared_kib:g}")
