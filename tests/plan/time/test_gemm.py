"""Arithmetic intensity, tiles and waves against figures worked by hand; laws of the product's time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.plan.machines.cluster import gpu_from_spec
from vivace.plan.machines.gpu_names import known_gpu
from vivace.plan.time.gemm import (
    alignment_share,
    arithmetic_intensity,
    gemm_seconds,
    tile_efficiency,
    wave_efficiency,
)

A100 = gpu_from_spec(known_gpu("a100-sxm4-80gb"))[0]


@pytest.mark.parametrize(
    ("shape", "intensity"),
    [
        ((8192, 128, 8192), 124.12),
        ((8192, 8192, 8192), 2730.67),
        ((4096, 4096, 1), 0.9995),
        ((512, 1024, 4096), 315.08),
    ],
)
def test_arithmetic_intensity_in_16_bit(shape, intensity):
    assert arithmetic_intensity(*shape) == pytest.approx(intensity, abs=0.01)


def test_intensity_halves_when_elements_are_twice_as_wide():
    assert arithmetic_intensity(512, 1024, 4096, 4.0) == pytest.approx(315.08 / 2, abs=0.01)


def test_the_last_wave_of_117_tiles_on_108_multiprocessors_is_nearly_empty():
    assert wave_efficiency(2304, 1536, 108) == 1.0
    assert wave_efficiency(2304, 1664, 108) == pytest.approx(0.5417, abs=1e-4)


def test_tile_efficiency_is_the_filled_share_of_the_tiles():
    assert tile_efficiency(256, 128) == 1.0
    assert tile_efficiency(257, 128) == pytest.approx(257 / 512)


def test_an_odd_vocabulary_loses_half_the_rate():
    assert alignment_share(50_304, 768) == 1.0
    assert alignment_share(50_257, 768) == 0.5
    odd, even = (gemm_seconds(A100, "bf16", 8192, vocab, 768) for vocab in (50_257, 50_304))
    assert odd > 1.5 * even


def test_a_large_product_runs_near_the_achievable_rate():
    """MAMF measured 271 TFLOP/s at the best shape of an A100; training sees a little less."""
    rate = 2 * 8192**3 / gemm_seconds(A100, "bf16", 8192, 8192, 8192) / 1e12
    assert 220 < rate < 271


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 8192))
def test_no_product_is_faster_than_its_roofs(m, n, k):
    seconds = gemm_seconds(A100, "bf16", m, n, k)
    assert seconds >= 2 * m * n * k / A100.peak("bf16")
    assert seconds >= 2 * (m * k + n * k + m * n) / (A100.hbm_gb_s * 1e9)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_a_deeper_product_never_takes_less_time(m, n, k):
    assert gemm_seconds(A100, "bf16", 64 * m, 64 * n, 64 * (k + 1)) >= gemm_seconds(
        A100, "bf16", 64 * m, 64 * n, 64 * k
    )
