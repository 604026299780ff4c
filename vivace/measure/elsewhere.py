"""The machine of a process that ran on another host, from what that process told: a job sent from a login node.

What only the host itself can be asked (the processor's instructions, power limits, links) is not known, and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from vivace.hardware.gpu import with_catalogue
from vivace.protocol.payload import SeenDevice, SeenProcess
from vivace.records.machine import Cpu, Gpu, Machine

__all__ = ["machine_elsewhere"]

_UNKNOWN = "the processor, power limits and links of {host}: it is not the host that vivace runs on"


def machine_elsewhere(here: Machine, process: SeenProcess, devices: Sequence[SeenDevice]) -> Machine:
    """``here``: the machine that vivace runs on, with the versions that the process told."""
    cores = count_cores(process.cores) or process.logical_cores or 1
    return here.model_copy(
        update={
            "hostname": process.host,
            "os": process.os,
            "python_version": process.python,
            "cpu": Cpu(
                architecture=process.architecture, logical_cores=process.logical_cores, affinity_cores=cores,
                usable_cores=float(cores),
            ),
            "memory_gib": process.memory_gib,
            "memory_limit_gib": None,
            "gpus": tuple(with_catalogue(Gpu(index=index, **asdict(device))) for index, device in enumerate(devices)),
            "driver_version": None,
            "missing": (*here.missing, _UNKNOWN.format(host=process.host)),
        }
    )  # fmt: skip


def count_cores(spans: str | None) -> int:
    """How many cores a list such as ``0-3,8`` names.

    >>> count_cores("0-3,8")
    5
    """
    if not spans:
        return 0
    ends = [span.partition("-") for span in spans.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)
