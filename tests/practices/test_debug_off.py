"""Debugging switches: found when left on, also inside a context of the loop; then they stay off, whatever is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement

from vivace.practices.debug_off import PRACTICE, find


def left_on(*names: str, **fields):
    return measurement(structure={"debugging": names}, **fields)


def test_anomaly_detection_is_found_and_bounded_by_forward_and_backward():
    found = find(left_on("anomaly detection", roles={}))
    assert found is not None
    assert found.exposed_ms == 90.0
    assert found.evidence["on"] == "anomaly detection"
    assert "known only once it is off" in found.says
    assert found.why_not is None


def test_the_model_s_own_kernels_stay_when_anomaly_detection_goes():
    found = find(
        left_on("anomaly detection", roles={"matmul": 25.0, "norm": 5.0, "elementwise": 8.0, "reduction": 2.0})
    )
    assert found is not None
    assert found.exposed_ms == 70.0


def test_blocking_launches_are_bounded_by_the_idle_time_between_kernels():
    found = find(left_on("CUDA_LAUNCH_BLOCKING", roles={"matmul": 70.0}))
    assert found is not None
    assert found.exposed_ms == 30.0


@pytest.mark.parametrize("name", ["profiler", "gradcheck", "deterministic algorithms"])
def test_what_vivace_cannot_switch_off_is_left_to_the_user(name: str):
    found = find(left_on(name, roles={"matmul": 50.0, "convolution": 20.0}))
    assert found is not None
    assert found.why_not == f"vivace leaves {name} to you"
    assert found.by_hand


def test_not_found_when_nothing_is_on():
    assert find(left_on()) is None


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "deterministic algorithms"])
def test_a_switch_that_costs_nothing_on_a_cpu_is_no_finding_there(name: str):
    assert find(left_on(name, on_gpu=False)) is None


SCRIPT = """
import json, os, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.autograd.set_detect_anomaly(True)
inside, losses = [], []
for _ in range(3):
    with torch.autograd.detect_anomaly():
        inside.append(torch.is_anomaly_enabled())
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
    optimizer.step()
    losses.append(loss.item())
torch.set_anomaly_enabled(True, False)
with torch.autograd.set_detect_anomaly(True):
    inside.append(torch.is_anomaly_enabled())
with torch.autograd.profiler.emit_nvtx() as ranges:  # needs a GPU, unless it is off
    inside.append(torch.autograd._profiler_enabled())
assert ranges is not None
print(json.dumps([inside, os.environ.get("CUDA_LAUNCH_BLOCKING")]))
"""


def test_anomaly_detection_annotations_and_blocking_launches_stay_off(tmp_path: Path):
    done = run_with(SCRIPT, ["debug_off"], tmp_path, CUDA_LAUNCH_BLOCKING="1", CUDA_VISIBLE_DEVICES="")
    assert done.printed == [[False] * 5, None]
    assert done.told == {"debug_off": "applied: off: CUDA_LAUNCH_BLOCKING, anomaly detection, emit_nvtx"}


def test_a_script_without_debugging_is_left_alone(tmp_path: Path):
    script = "\n".join(line for line in SCRIPT.splitlines() if "anomaly" not in line and "emit_nvtx" not in line)
    script = script.replace("        loss", "    loss").replace("assert ranges is not None", "")
    script = script.replace("    inside.append(torch.autograd._profiler_enabled())", "")
    done = run_with(script, ["debug_off"], tmp_path)
    assert done.told == {"debug_off": "the script never made a part that it changes"}


LOOP = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(100):
    loss = model(torch.ones(2, 4)).sum()
    BACKWARD
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("backward", "debugging"),
    [
        ("loss.backward()", []),
        ("with torch.autograd.detect_anomaly(): loss.backward()", ["anomaly detection"]),
        (
            "torch.use_deterministic_algorithms(mode=True, warn_only=True); loss.backward()",
            ["deterministic algorithms"],
        ),
        (
            "loss.backward(); "
            "torch.autograd.gradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))",
            ["gradcheck"],
        ),
    ],
)
def test_measuring_sees_what_is_on_only_inside_the_loop(
    backward: str, debugging: list[str], vivace_here: Callable, tmp_path: Path
):
    path = tmp_path / "loop.py"
    path.write_text(LOOP.replace("BACKWARD", backward))
    record = vivace_here("measure", "--json", "--steps", "5", "--", sys.executable, str(path)).record
    assert record["structure"]["debugging"] == debugging
    line = 1 + LOOP.splitlines().index("    BACKWARD")
    assert {name: place["line"] for name, place in record["structure"]["debugging_where"].items()} == dict.fromkeys(
        debugging, line
    )


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_launches_no_longer_block(tmp_path: Path):
    script = """
import json, torch
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.0)
inputs = torch.ones(4096, 4096, device="cuda")
for _ in range(3):
    model(inputs).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
model(inputs)  # a trillion operations
end = torch.cuda.Event()
end.record()
print(json.dumps(end.query()))
"""
    done = run_with(script, ["debug_off"], tmp_path, CUDA_LAUNCH_BLOCKING="1")
    assert done.told == {"debug_off": "applied: off: CUDA_LAUNCH_BLOCKING"}
    assert done.printed is False  # the host is back before the GPU is done


def test_it_is_exact_and_says_what_is_lost():
    assert PRACTICE.risk == "exact"
    assert "a NaN no longer stops the run" in PRACTICE.why
