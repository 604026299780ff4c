"""Shapes that keep changing: round_lengths, preallocate, expandable_segments and cudnn_benchmark=off on one job."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement
from practices.loaders import loader

from vivace.practices import cudnn_benchmark, expandable_segments, preallocate, round_lengths
from vivace.practices.engine.probed import Probed
from vivace.records.measurement import AllocatorUse, Inputs, RuntimeCall
from vivace.tune.checking import findings_of
from vivace.tune.probing import Cause, Causes

FLAGS = {"compiled": True, "float32_matmul_precision": "high"}
VARYING = {
    "step_ms": 80.6,
    "roles": {"matmul": 17.0},
    "flags": FLAGS,
    "structure": {"autocast": "bfloat16"},
    "loaders": (loader(num_workers=4, wait_ms=0.0),),
    "input_shapes": 40,
    "inputs": Inputs(repeats=(1,) * 40, new=40, elements=1e6, squares=1e12),
    "allocator": AllocatorUse(steps=40, device_allocs=1200, device_frees=1100, segments=1200, retries=0),
    "profile": {"runtime": (RuntimeCall(name="cudaMalloc", per_step=30, ms_per_step=50.0),)},
}
"""The speech-like job of issue 13: 80.6 ms per step, and 18.1 with the same batch again."""
PROBED = Probed(same_batch_ms=18.1)


def test_a_job_padded_to_its_own_lengths_is_not_called_tuned():
    job = measurement(**VARYING)
    data = Cause("data", 62.5, "with the same batch again a step takes 18.1 ms, not 80.6")
    findings = findings_of(job, Causes((data,), PROBED), "m.json")
    assert findings.verdict == "improvable"
    assert findings.findings[0].practice == "round_lengths"
    assert findings.findings[0].exposed_ms == pytest.approx(62.5)
    assert findings.findings[0].worth == pytest.approx(80.6 / 18.1)
    assert findings.unexplained is None
    names = [f.practice for f in findings.findings]
    assert {"preallocate", "expandable_segments"} <= set(names)
    assert [f.applies for f in findings.findings if f.practice in ("preallocate", "expandable_segments")] == [
        True,
        True,
    ]


def test_without_the_probe_the_allocators_calls_are_the_price():
    found = round_lengths.find(measurement(**VARYING))
    assert found is not None
    assert found.exposed_ms == pytest.approx(50.0)
    assert "40 shapes in 40 steps, 40 of them new: with memory asked for anew they cost 50.0 ms" in found.says


def test_practices_of_the_allocator_are_priced_by_its_calls():
    for practice in (preallocate, expandable_segments):
        found = practice.find_probed(measurement(**VARYING), PROBED)
        assert found is not None
        assert found.exposed_ms == pytest.approx(50.0)
        assert "asked the driver for memory 30.0 times per step" in found.says


def test_the_block_to_take_is_a_quarter_more_than_the_peak():
    found = preallocate.find(measurement(**VARYING))
    assert found is not None
    assert found.setting == "preallocate=28"  # 22 GiB were reserved


def test_where_the_autotuner_empties_the_cache_it_is_to_be_switched_off_and_the_allocator_let_alone():
    convolutions = {**VARYING, "structure": {"autocast": "bfloat16", "conv_weights_channels_last": 1.0}}
    job = measurement(**{**convolutions, "flags": {**FLAGS, "cudnn_benchmark": True}})
    found = cudnn_benchmark.find_probed(job, PROBED)
    assert found is not None
    assert found.setting == "cudnn_benchmark=off"
    assert found.exposed_ms == pytest.approx(62.5)
    assert preallocate.find_probed(job, PROBED) is None
    assert expandable_segments.find_probed(job, PROBED) is None
    assert cudnn_benchmark.find_probed(measurement(**convolutions), PROBED) is None  # it is off


@pytest.mark.parametrize(
    "settled",
    [
        {"inputs": Inputs(repeats=(30, 10), new=1), "input_shapes": 2},  # a smaller last batch
        {"inputs": Inputs(repeats=(10, 10, 10, 10), new=2), "input_shapes": 4},  # rounded lengths
    ],
)
def test_few_shapes_that_come_again_are_no_finding(settled: dict):
    assert round_lengths.find_probed(measurement(**{**VARYING, **settled}), PROBED) is None


def test_an_allocator_that_has_settled_is_no_finding():
    quiet = {"allocator": AllocatorUse(steps=40, device_allocs=2), "profile": {}}
    job = measurement(**{**VARYING, **quiet})
    assert preallocate.find_probed(job, PROBED) is None
    assert expandable_segments.find_probed(job, PROBED) is None


@pytest.mark.parametrize("word", ["many", "0", "-3"])
def test_a_block_needs_a_size(word: str):
    with pytest.raises(ValueError, match="is not a number of GiB"):
        preallocate.Preallocate(word)


SCRIPT = """
import json, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad(); model(torch.ones(2, 4, device=device)).sum().backward(); optimizer.step()
print(json.dumps(torch.cuda.memory_reserved() / 2**30 if device == "cuda" else None))
"""


def test_without_a_gpu_it_says_so(tmp_path: Path):
    done = run_with(SCRIPT, ("preallocate=1",), tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told["preallocate=1"] == "the model is not on a GPU"


@needs_gpu
def test_the_block_stays_with_the_allocator(tmp_path: Path):
    done = run_with(SCRIPT, ("preallocate=2",), tmp_path)
    assert done.printed >= 2.0
    assert done.told["preallocate=2"] == "applied: 2.0 GiB taken before the first forward"
