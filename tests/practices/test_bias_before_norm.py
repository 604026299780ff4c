"""No bias before batch norm: found by the model's structure, priced by the passes that it adds; left to the user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from practices.evidence import measurement

from vivace.practices.bias_before_norm import PRACTICE, find

ROLES = {"convolution": 60.0, "norm": 12.0, "elementwise": 15.0, "reduction": 4.0}
BIASED = {"biases_before_norm": ("stem.0", "body.0"), "modules": {"convolution": 4, "norm": 2}}


def test_found_and_priced_by_its_share_of_the_small_passes():
    found = find(measurement(structure=BIASED, roles=ROLES))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.5 * (15.0 + 4.0))  # 9.5 ms of 100 at most
    assert found.likely is not None
    assert 0 < found.likely.ms < 0.5 * (15.0 / 2 + 4.0)
    assert found.evidence["first"] == "stem.0, body.0"
    assert found.why_not == "without its biases the model would not load its own checkpoints"


def test_where_the_gpu_waits_for_the_host_their_launches_count_too():
    """The row of benchmarks/defects/r05 on an H200: 12 biases, 250 kernels, 7.7 ms per step, 3.1 in kernels."""
    roles = {"norm": 2.33, "convolution": 1.7, "layout": 1.0, "elementwise": 0.61, "reduction": 0.32}
    biased = {"biases_before_norm": tuple("abcdefghijkl"), "modules": {"convolution": 12}}
    m = measurement(step_ms=7.71, roles=roles, structure=biased, profile={"kernels_per_step": 250.0})
    found = find(m)
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.61 + 0.32 + 2 * 24 * 7.71 / 250)
    busy = find(measurement(step_ms=6.5, roles=roles, structure=biased, profile={"kernels_per_step": 250.0}))
    assert busy is not None
    assert busy.exposed_ms == pytest.approx(0.61 + 0.32)


@pytest.mark.parametrize(
    "present",
    [
        {"structure": {"modules": {"convolution": 4, "norm": 4}}, "roles": ROLES},
        {"structure": BIASED, "roles": {"convolution": 98.0, "elementwise": 1.0}},
        {"structure": BIASED, "roles": ROLES, "on_gpu": False},  # oneDNN adds it within the convolution
        {"structure": {**BIASED, "modules": {"convolution": 200}}, "roles": ROLES},
    ],
)
def test_not_found_when_present_or_of_no_cost(present: dict):
    assert find(measurement(**present)) is None


SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, bias=False), nn.BatchNorm2d(4),
    nn.Conv2d(4, 4, 1), nn.ReLU(), nn.BatchNorm2d(4),
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(50):
    model(torch.ones(2, 3, 8, 8)).sum().backward()
    optimizer.step()
"""


def test_measuring_names_only_biases_directly_before_a_norm(vivace_here: Callable, tmp_path: Path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    record = vivace_here("measure", "--json", "--steps", "4", "--", sys.executable, str(path)).record
    assert record["structure"]["biases_before_norm"] == ["0"]


def test_only_the_user_can_change_it():
    assert PRACTICE.change is None
    assert "bias=False" in PRACTICE.by_hand
