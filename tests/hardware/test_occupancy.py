"""Occupancy: values worked by hand from the limits of each compute capability."""

from __future__ import annotations

import pytest

from vivace.errors import UserError
from vivace.hardware.catalogue import load_catalogue
from vivace.hardware.generations import Generation, generation_of
from vivace.hardware.occupancy import occupancy


def of(key: str) -> Generation:
    generation = generation_of(load_catalogue().gpus[key])
    assert generation is not None
    return generation


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "shared_kib", "warps", "limits"),
    [
        ("a100-sxm4-80gb", 256, 32, 0, 64, ("warps", "registers")),
        ("a100-sxm4-80gb", 256, 33, 0, 48, ("registers",)),  # 33 * 32 registers round up to 1,280: 12 warps each
        ("a100-sxm4-80gb", 32, 16, 0, 32, ("blocks",)),  # 32 blocks of one warp
        ("a100-sxm4-80gb", 1024, 64, 0, 32, ("registers",)),
        ("a100-sxm4-80gb", 1024, 80, 0, 0, ("registers",)),  # 24 warps have room, and a block has 32
        ("a100-sxm4-80gb", 96, 32, 0, 63, ("warps", "registers")),  # 21 blocks of three warps
        ("a100-sxm4-80gb", 128, 32, 40, 16, ("shared memory",)),  # 41 KiB each, of 164
        ("a100-sxm4-80gb", 128, 32, 40.2, 12, ("shared memory",)),
        ("v100-sxm2-32gb", 128, 32, 32, 12, ("shared memory",)),  # nothing is reserved: three in 96 KiB
        ("h100-sxm5-80gb", 128, 32, 227, 4, ("shared memory",)),
    ],
)  # fmt: skip
def test_resident_warps(gpu: str, threads: int, registers: int, shared_kib: float, warps: int, limits: tuple[str, ...]):
    found = occupancy(of(gpu), threads, registers, shared_kib)
    assert (found.warps, found.limits) == (warps, limits)
    assert found.share == warps / 64


@pytest.mark.parametrize(
    ("threads", "registers", "shared_kib", "message"),
    [
        (0, 32, 0, "1 to 1024 threads"),
        (256, 256, 0, "1 to 255 registers"),
        (256, 32, 228, "at most 227 KiB of shared memory"),
    ],
)
def test_what_no_kernel_has_is_refused(threads: int, registers: int, shared_kib: float, message: str):
    with pytest.raises(UserError, match=message):
        occupancy(of("h100-sxm5-80gb"), threads, registers, shared_kib)


def test_a_gpu_whose_units_are_not_known_is_refused():
    with pytest.raises(UserError, match="units this GPU hands out shared memory"):
        occupancy(of("b200-sxm"), 256, 32)
