"""Expandable segments: found by allocation retries or a full card with holes; set before torch starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement

from vivace.practices.expandable_segments import find
from vivace.records.measurement import Spread


def test_found_when_the_allocator_had_to_try_again_often():
    """40 retries in 35 steps: they may explain all the idle time, 100 - 70 ms."""
    found = find(measurement(memory={"alloc_retries": 40}, roles={"matmul": 70.0}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(30.0)


@pytest.mark.parametrize(("retries", "exposed_ms"), [(1, 4.0), (10, 100.0 * 10 / 35)])
def test_rare_retries_cost_slow_steps_or_so_much_each(retries: int, exposed_ms: float):
    """Of 30 steps and 5 of warm-up: what the mean lies above the median, or 100 ms a retry where that is more."""
    m = measurement(memory={"alloc_retries": retries}, step_ms=100.0, roles={"matmul": 70.0})
    m = m.model_copy(update={"step_ms": Spread(median=96.0, p10=95.0, p90=97.0, mean=100.0)})
    found = find(m)
    assert found is not None
    assert found.exposed_ms == pytest.approx(exposed_ms)


def test_found_when_the_card_is_full_of_holes():
    found = find(measurement(memory={"allocated_peak_gib": 100.0, "reserved_peak_gib": 135.0}))
    assert found is not None
    assert found.exposed_ms == 0.0
    assert "35.0 GiB are reserved but not in use" in found.says


@pytest.mark.parametrize(
    "present",
    [
        {},
        {"memory": {"alloc_retries": 9}, "structure": {"allocator": "expandable_segments:True"}},
        {"memory": {"allocated_peak_gib": 30.0, "reserved_peak_gib": 60.0}},  # holes, but there is room
        {"memory": {"allocated_peak_gib": 130.0, "reserved_peak_gib": 138.0}},  # full, of tensors
        {"on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


def test_a_setting_of_the_users_own_is_not_overruled():
    found = find(measurement(memory={"alloc_retries": 9}, structure={"allocator": "max_split_size_mb:128"}))
    assert found is not None
    assert found.why_not == "PYTORCH_ALLOC_CONF is set already (max_split_size_mb:128)"


SCRIPT = """
import json, os, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 4, device=device)).sum().backward()
    optimizer.step()
settings = torch.cuda.memory._snapshot()["allocator_settings"] if device == "cuda" else {}
print(json.dumps([os.environ.get("PYTORCH_ALLOC_CONF"), settings.get("expandable_segments")]))
"""


def test_the_process_starts_with_the_variable(tmp_path: Path):
    done = run_with(SCRIPT, ["expandable_segments"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.printed == ["expandable_segments:True", None]
    assert done.told == {"expandable_segments": "there is no GPU"}


@pytest.mark.gpu
@needs_gpu
def test_the_allocator_of_the_gpu_takes_it(tmp_path: Path):
    done = run_with(SCRIPT, ["expandable_segments"], tmp_path)
    assert done.printed == ["expandable_segments:True", True]
    assert done.told == {"expandable_segments": "applied: PYTORCH_ALLOC_CONF=expandable_segments:True"}


@pytest.mark.gpu
@needs_gpu
def test_the_users_own_variable_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    done = run_with(SCRIPT, ["expandable_segments"], tmp_path)
    assert done.printed == [None, False]
    assert "is set to something else" in done.told["expandable_segments"]
