"""The machine of a job that was sent from another host."""

from __future__ import annotations

import pytest
from practices.evidence import measurement

from vivace.measure.elsewhere import count_cores, machine_elsewhere
from vivace.practices.engine.pricing import capability
from vivace.protocol.payload import SeenDevice, SeenProcess

PROCESS = SeenProcess(
    host="node7", os="Linux", architecture="x86_64", python="3.12.3", cores="0-9,20-29", logical_cores=40,
    memory_gib=512.0,
)  # fmt: skip
H100 = SeenDevice("NVIDIA H100 80GB HBM3", "GPU-1", memory_gib=79.6, sm_count=132, compute_capability="9.0")


def test_gpus_cores_and_memory_are_those_that_the_process_told():
    login = measurement(on_gpu=False).machine
    there = machine_elsewhere(login, PROCESS, [H100])
    assert (there.hostname, there.cpu.usable_cores, there.memory_gib) == ("node7", 20.0, 512.0)
    assert there.gpus[0].catalogue_key is not None
    assert there.gpus[0].dense_peak_tflops["bf16"] > 900
    assert any("node7" in sentence for sentence in there.missing)
    assert there.torch_version == login.torch_version  # the versions were told before


def test_practices_then_know_what_the_gpu_can_do():
    login = measurement(on_gpu=False).machine
    m = measurement().model_copy(update={"machine": machine_elsewhere(login, PROCESS, [H100])})
    assert capability(m) == (9, 0)


@pytest.mark.parametrize(("spans", "count"), [(None, 0), ("", 0), ("5", 1), ("0-3", 4), ("0-3,8,10-11", 7)])
def test_cores_are_counted(spans: str | None, count: int):
    assert count_cores(spans) == count
