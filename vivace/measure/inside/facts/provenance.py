"""What a figure was measured on: versions, device, seed, and a hash of the user's own code."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys
import sysconfig
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from vivace import __version__
from vivace.hardware.software import read_software
from vivace.measure.inside.counting.flops import something_was_compiled
from vivace.protocol.payload import SeenDevice, SeenProcess

__all__ = ["describe_devices", "describe_process"]


def describe_process() -> SeenProcess:
    import torch.version

    main = getattr(sys.modules.get("__main__"), "__file__", None)
    missing: list[str] = []
    software = asdict(read_software(torch, missing))
    return SeenProcess(
        vivace=__version__,
        host=socket.gethostname(),
        os=platform.platform(),
        architecture=platform.machine(),
        logical_cores=os.cpu_count(),
        memory_gib=_memory_gib(),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=software["cudnn_version"],
        software=software,
        missing_software=missing,
        seed=torch.initial_seed(),
        script=os.path.abspath(main) if main else None,
        code_sha256=_code_hash(main),
        threads=torch.get_num_threads(),
        cores=_cores(),
        flags=_flags(),
    )


def _memory_gib() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):  # no POSIX
        return 0.0


def _flags() -> dict[str, Any]:
    """Settings that decide speed and cannot be seen from outside."""
    return {
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "anomaly_detection": torch.is_anomaly_enabled(),
        "compiled": something_was_compiled(),
        "flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
        "mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "cudnn_sdp": torch.backends.cuda.cudnn_sdp_enabled(),
        "onednn": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    }


def _cores() -> str | None:
    """The logical cores that this process may run on, as ``0-3,8``."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    spans: list[list[int]] = []
    for core in sorted(os.sched_getaffinity(0)):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in spans)


def describe_devices(indices: list[int]) -> list[SeenDevice]:
    described = []
    for index in indices:
        properties = torch.cuda.get_device_properties(index)
        uuid = str(getattr(properties, "uuid", ""))
        described.append(
            SeenDevice(
                name=properties.name,
                uuid=uuid if not uuid or uuid.startswith("GPU-") else f"GPU-{uuid}",
                memory_gib=properties.total_memory / 2**30,
                sm_count=properties.multi_processor_count,
                compute_capability=f"{properties.major}.{properties.minor}",
            )
        )
    return described


def _code_hash(main: str | None) -> str | None:
    """SHA-256 over the main script and every module of the user's own (under the script's or the current folder)."""
    if main is None:
        return None
    homes = {os.path.dirname(os.path.abspath(main)), os.getcwd()}
    installed = tuple(os.path.abspath(path) + os.sep for path in set(sysconfig.get_paths().values()))
    files = {os.path.abspath(main)}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) if isinstance(module, types.ModuleType) else None
        if isinstance(file, str) and file.endswith(".py"):
            file = os.path.abspath(file)
            ours = (module.__name__ or "").partition(".")[0] == "vivace"
            if not ours and not file.startswith(installed) and any(file.startswith(home + os.sep) for home in homes):
                files.add(file)
    digest = hashlib.sha256()
    for file in sorted(files):
        try:
            digest.update(Path(file).read_bytes())
        except OSError:
            continue
    return digest.hexdigest()
