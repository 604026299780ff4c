"""Counts of magnitudes against torch's own casts, and what loss scaling makes of them."""

from __future__ import annotations

import math

import pytest
import torch

from vivace.measure.histograms import histograms
from vivace.measure.inside.counting.magnitudes import BINS, ZEROS, count_magnitudes, floating_tensors
from vivace.measure.inside.stages.histograms import _histogram
from vivace.measure.number_formats import FORMATS
from vivace.protocol.histograms import Numbers, SeenHistograms
from vivace.records.histograms import Histograms

DTYPES = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "fp8 e4m3": torch.float8_e4m3fn, "fp8 e5m2": torch.float8_e5m2
}  # fmt: skip


def seen(values: torch.Tensor, numbers: Numbers = Numbers.PARAMETER_GRADIENTS, **more: float) -> Histograms:
    return histograms(SeenHistograms(1, layers=[_histogram("x", numbers, count_magnitudes(values).tolist())], **more))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_formats_are_torchs(form):
    known = torch.finfo(DTYPES[form.name])
    assert form.largest == known.max
    assert 2.0**form.normal_log2 == known.smallest_normal
    assert torch.tensor(2.0**form.smallest_log2).to(DTYPES[form.name]).float().item() == 2.0**form.smallest_log2
    assert torch.tensor(2.0**form.smallest_log2 / 2).to(DTYPES[form.name]).item() == 0


def test_octaves_zeros_and_what_is_not_finite():
    values = torch.tensor([0.0, -0.0, 1.0, -1.99, 2.0, 0.75, math.inf, -math.inf, math.nan, 1e-44])
    whole = seen(values).together[0]
    assert (whole.zeros, whole.not_finite, whole.values) == (2, 3, 5)
    assert whole.first_octave == -127  # all that float32 itself holds with fewer digits
    assert whole.counts[-3:] == (1, 2, 1)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_shares_are_those_of_a_cast(form):
    generator = torch.Generator().manual_seed(0)
    exponents = torch.empty(20_000).uniform_(-30, 20, generator=generator)
    values = torch.exp2(exponents) * torch.where(torch.rand(20_000, generator=generator) < 0.5, -1, 1)
    shares = seen(values).together[0].shares(form.name)
    small, large = 2.0**form.smallest_log2, form.largest
    assert shares.lost == pytest.approx((values.abs() < small).float().mean().item(), abs=1e-6)
    assert shares.overflow == pytest.approx((values.abs() > large).float().mean().item(), abs=1e-4)
    subnormal = (values.abs() >= small) & (values.abs() < 2.0**form.normal_log2)
    assert shares.subnormal == pytest.approx(subnormal.float().mean().item(), abs=1e-6)
    # A cast rounds: it saves at most the upper half of the octave below the smallest number.
    cast = (values.to(DTYPES[form.name]).float() == 0).float().mean().item()
    lower = (values.abs() < small / 2).float().mean().item()
    assert lower - 1e-6 <= cast <= shares.lost + 1e-6


def test_the_best_scale_loses_least_without_an_overflow():
    values = torch.tensor([2.0**-30] * 6 + [2.0**-20] * 3 + [1.0])
    fp16 = seen(values).scaling[0]
    assert (fp16.at(0).lost, fp16.at(0).subnormal) == (0.6, pytest.approx(0.3))
    assert (fp16.at(6).lost, fp16.at(6).subnormal) == (0.0, 0.6)
    assert fp16.at(15).overflow == 0
    assert fp16.at(16).overflow == 0.1
    assert fp16.best_log2 == 6  # up to 15 more would leave as many subnormal: the smallest has most room


def test_no_scale_helps_what_is_too_large():
    assert seen(torch.tensor([1e6])).scaling[0].best_log2 is None


def test_activations_keep_their_place_when_the_loss_was_scaled():
    assert seen(torch.ones(4), Numbers.ACTIVATIONS, loss_scale=1024.0).together[0].first_octave == 0
    assert seen(torch.ones(4), loss_scale=1024.0).together[0].first_octave == -10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_dtype_and_layout(dtype):
    values = torch.arange(-4, 4).to(dtype).reshape(2, 4).t()
    counts = count_magnitudes(values)
    assert counts.sum() == 8
    assert counts[ZEROS] == 1
    assert len(counts) == BINS + 1


def test_tensors_in_what_a_module_returns():
    one, two = torch.ones(1), torch.ones(2)
    assert floating_tensors({"logits": one, "more": (two, [torch.ones(1, dtype=torch.int64), None])}) == [one, two]
