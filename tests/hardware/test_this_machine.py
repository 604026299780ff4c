"""This machine, whatever it is, and the versions of a made-up torch."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from vivace.hardware.cgroups import Limits
from vivace.hardware.machine import _memory_limit_gib, this_machine
from vivace.hardware.software import Software, import_torch, read_software, torch_build
from vivace.records.machine import Machine


@pytest.fixture(autouse=True)
def _no_user_files(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("VIVACE_CATALOGUE", raising=False)


def test_this_machine_is_a_record_that_survives_json():
    machine = this_machine()
    assert Machine.from_json(machine.to_json()) == machine
    assert 0 < machine.cpu.usable_cores <= os.cpu_count()
    assert machine.memory_limit_gib is None or 0 < machine.memory_limit_gib < machine.memory_gib
    assert machine.python_version == ".".join(map(str, sys.version_info[:3]))


def test_a_machine_without_gpus_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    machine = this_machine()
    assert machine.gpus == ()
    assert (machine.torch_version, machine.torch_build) == (None, None)
    assert any("torch is not importable" in sentence for sentence in machine.missing)
    assert any("pynvml is not importable" in sentence for sentence in machine.missing)


@pytest.mark.parametrize(("limit", "expected"), [(None, None), (2**34, 16.0), (2**35, None), (2**36, None)])
def test_a_memory_limit_counts_below_what_is_fitted(limit, expected):
    assert _memory_limit_gib(Limits(memory_bytes=limit), memory_bytes=2**35) == expected


def test_versions_of_a_cuda_torch():
    torch = SimpleNamespace(
        __version__="2.11.0+cu130",
        version=SimpleNamespace(cuda="13.0", hip=None),
        _C=SimpleNamespace(_cudnn=SimpleNamespace(getRuntimeVersion=lambda: (9, 10, 2))),
        cuda=SimpleNamespace(nccl=SimpleNamespace(version=lambda: (2, 28, 3))),
    )
    missing: list[str] = []
    assert read_software(torch, missing) == Software("2.11.0+cu130", "cu130", "13.0", "9.10.2", "2.28.3")
    assert missing == []


def test_versions_of_a_cpu_torch():
    torch = SimpleNamespace(__version__="2.11.0+cpu", version=SimpleNamespace(cuda=None))
    missing: list[str] = []
    assert read_software(torch, missing) == Software("2.11.0+cpu", "cpu")
    assert missing == ["CUDA, cuDNN and NCCL versions: torch is built without CUDA (cpu)"]


def test_a_torch_that_cannot_be_imported_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    missing: list[str] = []
    assert import_torch(missing) is None
    assert missing[0].startswith("torch is not importable (")


@pytest.mark.parametrize(
    ("version", "cuda", "hip", "expected"),
    [
        ("2.11.0+cu130", "13.0", None, "cu130"),
        ("2.11.0", "12.8", None, "cu128"),
        ("2.11.0+cpu", None, None, "cpu"),
        ("2.11.0", None, None, "cpu"),
        ("2.11.0", None, "6.4", "rocm6.4"),
    ],
)
def test_builds(version, cuda, hip, expected):
    assert torch_build(version, cuda, hip) == expected


def test_a_library_that_does_not_answer_is_said():
    def refuse():
        raise RuntimeError("no")

    torch = SimpleNamespace(
        __version__="2.11.0",
        version=SimpleNamespace(cuda="13.0"),
        _C=SimpleNamespace(_cudnn=SimpleNamespace(getRuntimeVersion=refuse)),
        cuda=SimpleNamespace(nccl=SimpleNamespace(version=refuse)),
    )
    missing: list[str] = []
    assert read_software(torch, missing) == Software("2.11.0", "cu130", "13.0")
    assert [sentence.partition(":")[0] for sentence in missing] == ["the cuDNN version", "the NCCL version"]


@pytest.mark.gpu
def test_looking_at_the_machine_makes_no_cuda_context():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    code = "import torch; from vivace.hardware.machine import this_machine; m = this_machine(); "
    code += "assert not torch.cuda.is_initialized(); p = torch.cuda.get_device_properties(0); "
    code += "assert (p.name, p.multi_processor_count) == (m.gpus[0].name, m.gpus[0].sm_count)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_versions_that_another_process_told_need_no_torch_here():
    code = (
        "import sys; from vivace.hardware.machine import this_machine; from vivace.hardware.software import Software; "
        "m = this_machine(Software('2.99.0+cu999', 'cu999', '99.9'), ['cuDNN: not told']); "
        "assert 'torch' not in sys.modules; print(m.torch_version, m.cuda_version, 'cuDNN: not told' in m.missing)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2.99.0+cu999", "99.9", "True"]
