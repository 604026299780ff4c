"""Magnitudes are counted in steps of their own, and the training is the same bit for bit."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from conftest import SCRIPTS, Done, environment
from forked.here import vivace_here
from report.made import in_terminal

from vivace.protocol.histograms import Numbers
from vivace.records.measurement import Measurement
from vivace.report.measurement_sections import measurement_sections
from vivace.report.terminal import measurement_view

SCRIPT = SCRIPTS / "magnitudes.py"


def measured(folder: Path, *words: str) -> Measurement:
    options = ["--json", "--histograms", "--no-profile", "--no-flops", "--warmup", "2", "--steps", "6"]
    command = [sys.executable, str(SCRIPT), str(folder / "seen"), *words]
    done = Done(vivace_here(["measure", *options, "--", *command], folder, environment()), folder)
    assert done.code == 0, done.err
    return Measurement.model_validate(done.record)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("histograms")


@pytest.fixture(scope="module")
def record(folder: Path) -> Measurement:
    return measured(folder)


def test_losses_and_random_numbers_stay_the_same(record: Measurement, folder: Path):
    seen = (folder / "seen").read_text().splitlines()
    with patch.object(sys, "argv", ["magnitudes.py", str(folder / "alone")]):
        runpy.run_path(str(SCRIPT))
    alone = (folder / "alone").read_text().splitlines()
    assert record.histograms is not None
    assert record.histograms.steps == 3
    assert len(seen) == 10  # 2 + 6 + 3 steps, the last of which ends before it prints
    assert seen == alone[: len(seen)]


def test_every_layer_is_counted_in_three_steps(record: Measurement):
    assert record.histograms is not None
    counted = {(one.layer, one.numbers): one.values + one.zeros for one in record.histograms.layers}
    for layer, width in {"0": 16, "1": 16, "2": 16, "3": 4}.items():
        assert counted[layer, Numbers.ACTIVATIONS] == counted[layer, Numbers.ACTIVATION_GRADIENTS] == 3 * 32 * width
    assert counted["0", Numbers.PARAMETER_GRADIENTS] == 3 * (8 * 16 + 16)
    assert counted["3", Numbers.PARAMETER_GRADIENTS] == 3 * (16 * 4 + 4)
    whole = {one.numbers: one.values for one in record.histograms.together}
    layers = [one for one in record.histograms.layers if one.numbers is Numbers.ACTIVATIONS]
    assert whole[Numbers.ACTIVATIONS] == sum(one.values for one in layers)


def test_small_gradients_are_lost_in_fp16_and_rescued_by_scaling(record: Measurement):
    assert record.histograms is not None
    fp16, bf16, _e4m3, e5m2 = record.histograms.scaling
    assert fp16.at(0).lost > 0.5
    assert fp16.best_log2 is not None
    assert fp16.at(fp16.best_log2).lost == 0
    assert [one.lost for one in fp16.scales] == sorted((one.lost for one in fp16.scales), reverse=True)
    assert (bf16.at(0).lost, bf16.best_log2) == (0, 0)
    assert e5m2.at(0).lost == 1


def test_the_factor_of_a_scaler_is_taken_out(record: Measurement, folder: Path):
    scaled = measured(folder, "--factor", str(2.0**10))
    assert record.histograms is not None
    assert scaled.histograms is not None
    assert scaled.histograms.loss_scale == 2**10
    assert scaled.histograms.together == record.histograms.together


def test_without_the_option_nothing_is_counted(measure: Callable[..., Done], tmp_path: Path):
    options = ("--steps", "4", "--warmup", "2", "--no-profile", "--no-flops")
    assert measure("magnitudes.py", str(tmp_path / "seen"), options=options).record["histograms"] is None


def test_terminal_and_page_show_them(record: Measurement):
    text = in_terminal(measurement_view(record, "runs"), width=140)
    assert "magnitudes, counted in 3 steps of their own" in text
    assert "fp16: " in text
    assert "with the loss scaled by 2^" in text
    assert "bf16: holds all gradients without loss scaling" in text
    page: Any = "".join(measurement_sections(record, "x"))
    assert '<section id="histograms">' in page
    assert "2: activation gradients" in page
    assert page.count("too small or too large at each") == 2  # the title and the chart's label
