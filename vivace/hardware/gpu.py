"""The GPUs that this process sees, asked of the driver (NVML), so that no CUDA context is made.

Called by ``hardware.machine``. ``pynvml`` is imported here, and only when asked; torch is asked for the GPUs
only when NVML does not answer, because that initialises CUDA.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from vivace.hardware.catalogue import find_gpu
from vivace.hardware.visible import visible_indices
from vivace.records.machine import Gpu

__all__ = ["Gpus", "read_gpus", "sm_count", "with_catalogue"]

GIB = 2**30
T = TypeVar("T")


@dataclass(frozen=True)
class Gpus:
    """What was found, and the driver that told it."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None


def read_gpus(torch: Any | None, missing: list[str]) -> Gpus:
    """The visible GPUs in CUDA's order. ``torch`` is the module, or None where it cannot be imported."""
    found = _asked_nvml(torch, missing)
    names = {gpu.name for gpu in found.gpus}
    for name in sorted({gpu.name for gpu in found.gpus if gpu.catalogue_key is None}):
        missing.append(f"peaks and bandwidth of {name}: not in the catalogue (a file of your own can add it)")
    # CUDA numbers by speed unless told otherwise, NVML by bus: they can differ when the GPUs do.
    if len(names) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        missing.append("the order of unlike GPUs: it is certain only with CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return found


def _asked_nvml(torch: Any | None, missing: list[str]) -> Gpus:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        missing.append("power, links and driver of GPUs: pynvml is not importable (pip install nvidia-ml-py)")
        return Gpus(_gpus_of_torch(torch))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return _without_nvml(torch, error, missing)
    try:
        return _gpus_of_nvml(nvml, missing)
    except nvml.NVMLError as error:
        return _without_nvml(torch, error, missing)
    finally:
        nvml.nvmlShutdown()


def sm_count(cuda_cores: int | None, capability: tuple[int, int] | None) -> int | None:
    """NVML counts CUDA cores: a multiprocessor has 64 on Volta, Turing and A100, and 128 on later GPUs.

    >>> sm_count(16896, (9, 0))
    132
    """
    if cuda_cores is None or capability is None or capability < (7, 0):
        return None
    return cuda_cores // (64 if capability <= (8, 0) else 128)


def _without_nvml(torch: Any | None, error: Exception, missing: list[str]) -> Gpus:
    gpus = _gpus_of_torch(torch)
    if gpus:
        missing.append(f"power, links and driver of GPUs: NVML does not answer ({error})")
    else:
        missing.append(f"no NVIDIA driver that answers: GPUs not looked for (NVML: {error})")
    return Gpus(gpus)


def _gpus_of_nvml(nvml: Any, missing: list[str]) -> Gpus:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = visible_indices(setting, uuids)
    if setting is not None and len(chosen) < len(setting.split(",")):
        missing.append(f"GPUs that CUDA_VISIBLE_DEVICES={setting!r} hides: it names no whole GPU, or one twice")
    if any(_is_divided(nvml, handles[index]) for index in chosen):
        missing.append("this process's share of a GPU divided by MIG: the figures are the whole GPU's")
    gpus = tuple(_gpu(nvml, handles[index], uuids[index], place) for place, index in enumerate(chosen))
    missing.extend(f"{what}: the driver does not tell (a virtual machine?)" for what in _unanswered(gpus))
    return Gpus(gpus, _text(nvml.nvmlSystemGetDriverVersion()))


def _unanswered(gpus: tuple[Gpu, ...]) -> list[str]:
    questions = {"power_limit_w": "the power limit", "pcie_generation": "the PCIe link"}
    silent = [what for key, what in questions.items() if any(getattr(gpu, key) is None for gpu in gpus)]
    for gpu in gpus:
        spec = find_gpu(gpu.name)
        # Most GPUs have no NVLink: only one that the catalogue gives it is worth a sentence.
        if gpu.nvlink_active_links is None and spec is not None and spec.nvlink_generation is not None:
            return [*silent, "the active NVLinks"]
    return silent


def _is_divided(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False


def _gpu(nvml: Any, handle: Any, uuid: str, index: int) -> Gpu:
    def asked(question: Callable[..., T], *arguments: Any) -> T | None:
        # Virtual machines and older GPUs do not answer every question: what is not answered is not known.
        try:
            return question(handle, *arguments)
        except nvml.NVMLError:
            return None

    capability = asked(nvml.nvmlDeviceGetCudaComputeCapability)
    power_limit_mw = asked(nvml.nvmlDeviceGetEnforcedPowerLimit)
    states = [asked(nvml.nvmlDeviceGetNvLinkState, link) for link in range(nvml.NVML_NVLINK_MAX_LINKS)]
    answered = [state for state in states if state is not None]
    return with_catalogue(
        Gpu(
            index=index,
            name=_text(nvml.nvmlDeviceGetName(handle)),
            uuid=uuid,
            memory_gib=nvml.nvmlDeviceGetMemoryInfo(handle).total / GIB,
            sm_count=sm_count(asked(nvml.nvmlDeviceGetNumGpuCores), tuple(capability) if capability else None),
            compute_capability=".".join(map(str, capability)) if capability else None,
            power_limit_w=None if power_limit_mw is None else power_limit_mw / 1000,
            nvlink_active_links=sum(map(bool, answered)) if answered else None,
            pcie_generation=asked(nvml.nvmlDeviceGetMaxPcieLinkGeneration),
            pcie_width=asked(nvml.nvmlDeviceGetMaxPcieLinkWidth),
        )
    )


def _gpus_of_torch(torch: Any | None) -> tuple[Gpu, ...]:
    if torch is None or not torch.cuda.is_available():
        return ()
    return tuple(_gpu_of_torch(torch, index) for index in range(torch.cuda.device_count()))


def _gpu_of_torch(torch: Any, index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)
    return with_catalogue(
        Gpu(
            index=index,
            name=properties.name,
            uuid=None if uuid is None else f"GPU-{uuid}",
            memory_gib=properties.total_memory / GIB,
            sm_count=properties.multi_processor_count,
            compute_capability=f"{properties.major}.{properties.minor}",
        )
    )


def with_catalogue(gpu: Gpu) -> Gpu:
    """Peaks and bandwidths, which no driver tells."""
    spec = find_gpu(gpu.name)
    if spec is None:
        return gpu
    nvlink = spec.nvlink_gbytes_per_s if gpu.nvlink_active_links else (0.0 if gpu.nvlink_active_links == 0 else None)
    return gpu.model_copy(
        update={
            "catalogue_key": spec.key,
            "dense_peak_tflops": dict(spec.dense_peak_tflops),
            "memory_bandwidth_gbytes_per_s": spec.memory_bandwidth_gbytes_per_s,
            "nvlink_gbytes_per_s": nvlink,
            "sm_count": gpu.sm_count or spec.sm_count,
        }
    )


def _text(value: str | bytes) -> str:
    # Older nvidia-ml-py gives bytes.
    return value.decode() if isinstance(value, bytes) else value
