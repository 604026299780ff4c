"""``this_machine()``: everything that vivace knows about the machine it runs on, as one record.

Asks the operating system, the control groups, the driver and torch; makes no CUDA context where NVML answers.
Called by ``vivace hardware`` and by every stage that writes a measurement.
"""

from __future__ import annotations

import platform
import socket
from collections.abc import Sequence

import psutil

from vivace.hardware.cgroups import Limits, own_limits
from vivace.hardware.cpu import read_cpu
from vivace.hardware.gpu import GIB, read_gpus
from vivace.hardware.software import Software, import_torch, read_software
from vivace.records.machine import Machine

__all__ = ["this_machine"]


def this_machine(software: Software | None = None, missing_software: Sequence[str] = ()) -> Machine:
    """The machine as this process sees it. ``missing`` of the record says what could not be found, and why.

    ``software``: versions that another process has told. Then torch is not imported here, which takes seconds, and GPUs
    are found by the driver alone. Raises ``UserError`` when a catalogue file of the user's is damaged.
    """
    missing: list[str] = []
    limits = own_limits()
    cpu = read_cpu(limits, missing)
    torch = None
    if software is None:
        torch = import_torch(missing)
        software = read_software(torch, missing)
    else:
        missing.extend(missing_software)
    found = read_gpus(torch, missing)
    memory_bytes = psutil.virtual_memory().total
    return Machine(
        hostname=socket.gethostname(),
        os=platform.platform(),
        python_version=platform.python_version(),
        cpu=cpu,
        memory_gib=memory_bytes / GIB,
        memory_limit_gib=_memory_limit_gib(limits, memory_bytes),
        gpus=found.gpus,
        driver_version=found.driver_version,
        torch_version=software.torch_version,
        torch_build=software.torch_build,
        cuda_version=software.cuda_version,
        cudnn_version=software.cudnn_version,
        nccl_version=software.nccl_version,
        missing=tuple(missing),
    )


def _memory_limit_gib(limits: Limits, memory_bytes: int) -> float | None:
    # A limit above what is fitted limits nothing.
    if limits.memory_bytes is None or limits.memory_bytes >= memory_bytes:
        return None
    return limits.memory_bytes / GIB
