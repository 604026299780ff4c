"""GPUs as NVML would report them (a made-up NVML), CUDA_VISIBLE_DEVICES, and torch in place of NVML."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.hardware.gpu import read_gpus, sm_count
from vivace.hardware.visible import visible_indices

# A slow machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

UUIDS = ["GPU-aaaa-1", "GPU-aaab-2", "GPU-c-3"]


class NvmlError(Exception):
    """What the made-up NVML raises."""


class FakeNvml:
    """Three H200-like GPUs; ``without`` names the questions that it does not answer."""

    NVMLError = NvmlError
    NVML_NVLINK_MAX_LINKS = 18

    def __init__(self, names=("NVIDIA H200",) * 3, without=(), broken=False, mig=False):
        self.names, self.without, self.broken, self.mig = names, without, broken, mig
        self.open = 0

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "without"):
            return self._refuse
        return object.__getattribute__(self, name)

    def _refuse(self, *_):
        raise NvmlError("not supported")

    def nvmlInit(self):
        if self.broken:
            raise NvmlError("driver not loaded")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, handle):
        return UUIDS[handle]

    def nvmlDeviceGetName(self, handle):
        return self.names[handle].encode()

    def nvmlDeviceGetMemoryInfo(self, _):
        return SimpleNamespace(total=141 * 2**30)

    def nvmlDeviceGetCudaComputeCapability(self, _):
        return (9, 0)

    def nvmlDeviceGetNumGpuCores(self, _):
        return 16896

    def nvmlDeviceGetEnforcedPowerLimit(self, _):
        return 700_000

    def nvmlDeviceGetNvLinkState(self, _, link):
        return 1 if link < 18 else 0

    def nvmlDeviceGetMaxPcieLinkGeneration(self, _):
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, _):
        return 16

    def nvmlDeviceGetMigMode(self, _):
        return [int(self.mig), int(self.mig)]

    def nvmlSystemGetDriverVersion(self):
        return "580.1"


class FakeTorch:
    """A torch that sees one GPU."""

    class cuda:
        @staticmethod
        def is_available():
            return True

        @staticmethod
        def device_count():
            return 1

        @staticmethod
        def get_device_properties(_):
            return SimpleNamespace(
                name="Tesla V100-SXM2-32GB",
                uuid="abc",
                total_memory=32 * 2**30,
                multi_processor_count=80,
                major=7,
                minor=0,
            )


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Read GPUs through a given NVML, with no settings from outside."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("VIVACE_CATALOGUE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)

    def ask(nvml, torch=None, visible=None):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        missing: list[str] = []
        return read_gpus(torch, missing), missing

    return ask


def test_a_gpu_has_the_drivers_facts_and_the_catalogues(asked):
    nvml = FakeNvml()
    found, missing = asked(nvml)
    gpu = found.gpus[0]
    assert (gpu.name, gpu.uuid, gpu.memory_gib) == ("NVIDIA H200", "GPU-aaaa-1", 141)
    assert (gpu.sm_count, gpu.compute_capability, gpu.power_limit_w) == (132, "9.0", 700)
    assert (gpu.nvlink_active_links, gpu.nvlink_gbytes_per_s) == (18, 450)
    assert (gpu.pcie_generation, gpu.pcie_width) == (5, 16)
    assert gpu.catalogue_key == "h200-sxm"
    assert gpu.dense_peak_tflops["bf16"] == 989.4
    assert gpu.memory_bandwidth_gbytes_per_s == 4800
    assert found.driver_version == "580.1"
    assert missing == []
    assert nvml.open == 0


def test_gpus_come_in_the_order_of_cuda_visible_devices(asked):
    found, missing = asked(FakeNvml(), visible="GPU-c,0")
    assert [(gpu.index, gpu.uuid) for gpu in found.gpus] == [(0, "GPU-c-3"), (1, "GPU-aaaa-1")]
    assert missing == []


@pytest.mark.parametrize("setting", ["", "-1", "MIG-1234", "7", "0,0"])
def test_hidden_gpus_are_hidden_and_it_is_said(asked, setting):
    found, missing = asked(FakeNvml(), visible=setting)
    assert found.gpus == ()
    assert any("CUDA_VISIBLE_DEVICES" in sentence for sentence in missing)


def test_a_question_that_is_not_answered_leaves_the_rest(asked):
    without = {
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetNumGpuCores",
    }
    found, missing = asked(FakeNvml(without=without))
    gpu = found.gpus[0]
    assert (gpu.nvlink_active_links, gpu.nvlink_gbytes_per_s, gpu.power_limit_w) == (None, None, None)
    assert [sentence.partition(":")[0] for sentence in missing] == ["the power limit", "the active NVLinks"]
    assert gpu.pcie_generation == 5
    assert gpu.sm_count == 132  # from the catalogue


def test_no_active_link_is_no_bandwidth(asked):
    nvml = FakeNvml()
    nvml.nvmlDeviceGetNvLinkState = lambda *_: 0
    gpu = asked(nvml)[0].gpus[0]
    assert (gpu.nvlink_active_links, gpu.nvlink_gbytes_per_s) == (0, 0)


def test_an_uncatalogued_gpu_is_said(asked):
    found, missing = asked(FakeNvml(names=("NVIDIA Nobody",)))
    assert found.gpus[0].catalogue_key is None
    assert found.gpus[0].dense_peak_tflops == {}
    assert any("NVIDIA Nobody: not in the catalogue" in sentence for sentence in missing)


def test_unlike_gpus_and_divided_ones_are_said(asked):
    missing = asked(FakeNvml(names=("NVIDIA H200", "NVIDIA B200"), mig=True))[1]
    assert any("CUDA_DEVICE_ORDER=PCI_BUS_ID" in sentence for sentence in missing)
    assert any("MIG" in sentence for sentence in missing)


@pytest.mark.parametrize("nvml", [FakeNvml(broken=True), FakeNvml(without={"nvmlDeviceGetMemoryInfo"}), None])
def test_torch_tells_when_nvml_does_not(asked, nvml):
    found, missing = asked(nvml, torch=FakeTorch)
    gpu = found.gpus[0]
    assert (gpu.name, gpu.uuid, gpu.memory_gib, gpu.sm_count) == ("Tesla V100-SXM2-32GB", "GPU-abc", 32, 80)
    assert (gpu.compute_capability, gpu.catalogue_key, gpu.power_limit_w) == ("7.0", "v100-sxm2-32gb", None)
    assert len(missing) == 1
    assert missing[0].startswith("power, links and driver of GPUs")


def test_without_nvml_and_torch_it_is_said_that_nobody_looked(asked):
    found, missing = asked(FakeNvml(broken=True))
    assert found.gpus == ()
    assert missing == ["no NVIDIA driver that answers: GPUs not looked for (NVML: driver not loaded)"]


# CUDA cores of the products, from NVIDIA's data sheets.
@pytest.mark.parametrize(
    ("cores", "capability", "expected"),
    [
        (5120, (7, 0), 80),
        (6912, (8, 0), 108),
        (16896, (9, 0), 132),
        (10496, (8, 6), 82),
        (16384, (8, 9), 128),
        (None, (9, 0), None),
        (5120, None, None),
        (3584, (6, 0), None),
    ],
)
def test_multiprocessors_from_cuda_cores(cores, capability, expected):
    assert sm_count(cores, capability) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("GPU-c", [2]),
        ("GPU-aaab,0", [1, 0]),
        ("GPU-aaa", []),  # two GPUs begin so
        ("1,1", []),
        ("0,GPU-aaaa-1", []),
        ("none", []),
        ("²", []),
    ],
)
def test_rules_of_cuda_visible_devices(setting, expected):
    assert visible_indices(setting, UUIDS) == expected


@unhurried
@given(st.permutations(range(8)), st.integers(0, 8))
def test_any_order_of_distinct_indices_is_kept(order, count):
    uuids = [f"GPU-{index:04}" for index in range(8)]
    chosen = order[:count]
    assert visible_indices(",".join(map(str, chosen)), uuids) == chosen
    assert visible_indices(",".join(uuids[index] for index in chosen), uuids) == chosen
