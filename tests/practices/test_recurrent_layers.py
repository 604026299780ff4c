"""recurrent_layers: cells that are called for every position are found; whole layers are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from practices.evidence import measurement

from vivace.practices.recurrent_layers import PRACTICE, find
from vivace.tune.diagnosis import diagnose
from vivace.tune.trials import TrialSettings, run_trial

CELL = {"name": "LSTMCell", "inputs": 512, "hidden": 512, "calls": 200, "where": {"file": "train.py", "line": 31}}


def unrolled(**fields):
    """200 positions of a batch of 64: 5200 kernels, with the host as the limit."""
    return measurement(
        **{
            "batch_size": 64, "structure": {"cells": (CELL,)}, "roles": {"matmul": 20.0},
            "profile": {"kernels_per_step": 5200.0}, **fields,
        }
    )  # fmt: skip


def test_a_cell_in_a_loop_is_found_with_its_place_and_price():
    """By launches 24 · 200 of 5200 are its own: 83 of 90 ms. A layer takes 200 · 0.02 ms or its products: 4.3 ms."""
    found = find(unrolled())
    assert found is not None
    assert found.where == ("train.py", 31)
    cells_ms = 90.0 * 4800 / 5200
    products_ms = 3 * 2 * 64 * 200 * 4 * 512 * 1024 / (989.4e9 * 0.3)
    assert found.likely is not None
    assert found.likely.ms == pytest.approx(cells_ms - max(4.0, products_ms))
    assert found.exposed_ms == pytest.approx(cells_ms - 0.3 * products_ms)
    assert "nn.LSTM(512, 512, batch_first=True)" in (found.by_hand or "")


def test_where_the_rest_of_the_model_is_the_step_it_is_worth_little():
    busy = unrolled(profile={"kernels_per_step": 200_000.0}, flops={"bf16": 10**15})
    assert find(busy) is None


@pytest.mark.parametrize("cells", [(), ({**CELL, "calls": 4},)])
def test_not_found_without_a_loop(cells: tuple):
    assert find(unrolled(structure={"cells": cells})) is None


def test_it_is_for_the_author_to_do():
    (finding,) = [f for f in diagnose(unrolled()) if f.practice == "recurrent_layers"]
    assert not finding.applies
    assert PRACTICE.change is None


def test_the_weights_of_a_cell_give_the_same_layer():
    """What the lines by hand say."""
    cell, layer = torch.nn.LSTMCell(3, 5), torch.nn.LSTM(3, 5, batch_first=True)
    layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    sequence, state, outputs = torch.randn(2, 7, 3), None, []
    for position in range(7):
        state = cell(sequence[:, position], state)
        outputs.append(state[0])
    assert torch.allclose(torch.stack(outputs, 1), layer(sequence)[0], atol=1e-6)


@pytest.mark.usefixtures("forked_scripts")
def test_a_real_loop_is_found_on_a_cpu(tmp_path: Path):
    script = Path(__file__).parents[1] / "measure" / "scripts" / "varying.py"
    trial = run_trial(
        [sys.executable, str(script)],
        (),
        tmp_path / "t",
        TrialSettings(steps=8, evidence=True),
        lambda *_: None,
        lambda _: None,
    )
    assert trial.measurement is not None
    found = find(trial.measurement)
    assert found is not None
    assert found.where is not None
    assert found.where[0] == str(script)
    assert found.evidence["calls_per_step"] == 12
