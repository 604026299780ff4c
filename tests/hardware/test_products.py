"""The layer checklists hold the course's exact numbers."""

from __future__ import annotations

import pytest

from vivace.hardware.products import (
    arithmetic_intensity,
    layer_checklists,
    round_up,
    tensor_core_multiple,
    wave_efficiency,
)


@pytest.mark.parametrize(
    ("arithmetic", "multiples"),
    [
        ("tf32", (4, 32)),
        ("fp16", (8, 64)),
        ("bf16", (8, 64)),
        ("int8", (16, 128)),
        ("fp8", (16, 128)),
        ("fp32", (1, 32)),
    ],
)
def test_multiples_for_tensor_cores(arithmetic: str, multiples: tuple[int, int]):
    assert tensor_core_multiple(arithmetic) == multiples


def test_every_kind_of_layer_has_its_numbers():
    lists = layer_checklists()
    assert set(lists) == {"fully_connected", "convolution", "recurrent", "recurrent_persistent", "memory_limited"}
    assert lists["fully_connected"]["above"] == {"batch": 128, "inputs": 128, "outputs": 128}
    assert lists["convolution"]["divisible"] == {"tf32": 4, "fp16": 8}
    assert lists["convolution"]["first_layer_channels"] == 4
    assert lists["recurrent"]["above"] == {"minibatch": 128, "hidden": 256}
    assert lists["recurrent_persistent"]["divisible_hidden"] == {"fp16": 32}
    assert lists["recurrent_persistent"]["divisible_minibatch"] == {"fp16": 8}
    assert all(lists[kind]["ideal"] == 256 for kind in lists if kind != "memory_limited")


def test_a_thin_product_is_memory_bound_on_a_v100_and_a_square_one_is_not():
    v100 = 125e12 / 900e9  # FLOPs a byte
    assert arithmetic_intensity(8192, 128, 8192) == pytest.approx(124.12, abs=0.01)
    assert arithmetic_intensity(8192, 128, 8192) < v100 < arithmetic_intensity(8192, 8192, 8192)


def test_one_tile_more_than_the_multiprocessors_costs_a_wave():
    assert wave_efficiency(2304, 1536, 108) == 1.0
    assert wave_efficiency(2304, 1664, 108) == pytest.approx(0.5417, abs=1e-4)


def test_round_up():
    assert [round_up(n, 64) for n in (1, 64, 65, 50257)] == [64, 64, 128, 50304]
