"""TF32: found where products run in full fp32 on a GPU that has TF32, and priced by the two peaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import needs_gpu, run_with
from practices.evidence import V100, measurement

from vivace.practices.tf32 import PRACTICE, find

FP32 = {"flops": {"fp32": 10**12}, "roles": {"matmul": 80.0, "elementwise": 10.0}}


def test_found_when_products_run_in_full_fp32():
    found = find(measurement(**FP32))
    assert found is not None
    assert found.exposed_ms == pytest.approx(80 * (1 - 66.9 / 494.7))  # products at the peak of TF32
    assert found.evidence == {"fp32_share_of_flops": 1.0, "products_ms": 80.0}


def test_few_flops_in_fp32_may_take_much_of_the_time():
    """A tenth of the arithmetic at an eighth of the rate: beside convolutions in TF32 it takes nearly half the time."""
    found = find(measurement(flops={"tf32": 9 * 10**11, "fp32": 10**11}, roles={"matmul": 80.0}))
    assert found is not None
    in_fp32 = 80 * (1 / 66.9) / (1 / 66.9 + 9 / 494.7)
    assert found.exposed_ms == pytest.approx(in_fp32 * (1 - 66.9 / 494.7))


@pytest.mark.parametrize(
    "present",
    [
        {"flops": {"tf32": 10**12}},
        {"flops": {"bf16": 9 * 10**11, "fp32": 10**9}},  # what autocast leaves in fp32 is not worth a switch
        {**FP32, "gpu": V100},  # no TF32 there
        {**FP32, "on_gpu": False},
        {**FP32, "roles": {"matmul": 2.0, "elementwise": 90.0}},  # products take no time
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


SCRIPT = """
import json, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.set_float32_matmul_precision("highest")  # as scripts do, before the model runs
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print(json.dumps(torch.get_float32_matmul_precision()))
"""


def test_without_a_gpu_it_says_so_and_changes_nothing(tmp_path: Path):
    done = run_with(SCRIPT, ["tf32"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {"tf32": "there is no GPU"}
    assert done.printed == "highest"


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_the_switch_is_on_although_the_script_set_it_off(tmp_path: Path):
    done = run_with(SCRIPT, ["tf32"], tmp_path)
    assert done.told == {"tf32": "applied: fp32 products may use TF32"}
    assert done.printed == "high"


def test_it_does_not_claim_exactness():
    assert PRACTICE.risk == "rounding"
