"""The acceptance vectors of the source material: days, achieved FLOP/s, compute-optimal sizes, recipe
minutes.
"""

from __future__ import annotations

import pytest

from vivace.plan.models.built_in import named_transformer
from vivace.plan.models.flops import (
    achieved_flops_per_gpu,
    compute_optimal_flops,
    compute_optimal_parameters,
    compute_optimal_tokens,
    days_to_train,
    megatron_hardware_flops,
    megatron_model_flops,
    model_flops_per_token,
)
from vivace.plan.run.whole_run import recipe_minutes


@pytest.mark.parametrize(
    ("parameters", "tflops", "days"),
    [(2.7e9, 127, 1.2), (6.7e9, 130, 3.0), (1.3e10, 135, 5.6), (1.75e11, 140, 72.3), (1e12, 140, 413.4)],
)
def test_days_to_train_on_480_gpus_count_eight_operations_with_recomputation(parameters, tflops, days):
    assert days_to_train(parameters, 3e11, 480, tflops * 1e12) == pytest.approx(days, abs=0.06)


def test_days_without_recomputation_count_six():
    assert days_to_train(1.75e11, 3e11, 480, 140e12, recompute=False) == pytest.approx(54.3, abs=0.05)


def test_compute_optimal_flops_are_120_times_the_square_of_the_parameters():
    assert compute_optimal_flops(1.75e11) == pytest.approx(3.675e24)
    assert compute_optimal_flops(1e12) == pytest.approx(1.2e26)
    assert compute_optimal_tokens(7e10) == pytest.approx(1.4e12)
    assert compute_optimal_parameters(compute_optimal_flops(3e9)) == pytest.approx(3e9)


def test_achieved_rates_of_the_headline_runs():
    bloom = achieved_flops_per_gpu(176e9, 366e9, 384, 117)
    assert bloom / 1e12 == pytest.approx(99.6, abs=0.1)
    assert bloom * 8 / 6 / 1e12 == pytest.approx(132.8, abs=0.1)
    assert achieved_flops_per_gpu(405e9, 15e12, 16384, 54) / 1e12 == pytest.approx(476.8, abs=0.1)


@pytest.mark.parametrize(
    ("epochs", "samples", "rate", "minutes"),
    [
        (35, 1_281_167, 13_900, 53.77),
        (37, 1_281_167, 27_180, 29.07),
        (37, 1_281_167, 167_700, 4.71),
        (2200, 168, 1810, 3.40),
        (50, 278_528, 7560, 30.70),
        (19, 524_288, 8600, 19.31),
    ],
)
def test_recipe_minutes_of_mlperf(epochs, samples, rate, minutes):
    assert recipe_minutes(epochs, samples, rate) == pytest.approx(minutes, abs=0.01)


def test_megatron_equations_agree_with_the_printed_mfu_of_the_22b_model():
    """Korthikanti 2022 table 5: 22B, 1.10 s on 8 A100, MFU 41.5 %."""
    model = named_transformer("gpt-22b")
    assert megatron_model_flops(model, 2048, 4) / (1.10 * 8 * 312e12) == pytest.approx(0.415, abs=0.003)
    # Full recomputation repeats one forward pass of the layers: 4/3, less the output layer's share.
    ratio = megatron_hardware_flops(model, 2048, 4) / megatron_model_flops(model, 2048, 4)
    assert 1.30 < ratio < 4 / 3


def test_halving_for_the_causal_mask_touches_attention_only():
    model = named_transformer("llama-3-8b")
    full, half = (model_flops_per_token(model, 8192, share) for share in (1.0, 0.5))
    assert full - half == pytest.approx(6 * 32 * 4096 * 8192)
