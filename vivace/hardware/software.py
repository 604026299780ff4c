"""The versions that decide how fast training is: torch, CUDA, cuDNN, NCCL.

Imports torch, which takes seconds, and makes no CUDA context. Called by ``hardware.machine``.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

__all__ = ["Software", "import_torch", "read_software", "torch_build"]


@dataclass(frozen=True)
class Software:
    torch_version: str | None = None
    torch_build: str | None = None
    cuda_version: str | None = None
    cudnn_version: str | None = None
    nccl_version: str | None = None


def import_torch(missing: list[str]) -> Any | None:
    """The torch module, or None with the reason in ``missing``. A broken installation can raise OSError."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:
        missing.append(f"torch is not importable ({error})")
        return None


def read_software(torch: Any | None, missing: list[str]) -> Software:
    if torch is None:
        return Software()
    version, cuda = str(torch.__version__), torch.version.cuda
    build = torch_build(version, cuda, getattr(torch.version, "hip", None))
    if cuda is None:
        missing.append(f"CUDA, cuDNN and NCCL versions: torch is built without CUDA ({build})")
        return Software(version, build)
    return Software(version, build, cuda, _cudnn(torch, missing), _nccl(torch, missing))


def torch_build(version: str, cuda: str | None, hip: str | None = None) -> str:
    """Which build a torch is, from its version, or else from what it was compiled with.

    >>> torch_build("2.11.0+cu130", "13.0"), torch_build("2.11.0", "13.0"), torch_build("2.11.0", None)
    ('cu130', 'cu130', 'cpu')
    """
    _, _, tag = version.partition("+")
    if tag:
        return tag
    if cuda:
        return "cu" + "".join(cuda.split(".")[:2])
    return f"rocm{hip}" if hip else "cpu"


def _cudnn(torch: Any, missing: list[str]) -> str | None:
    # torch.backends.cudnn.version() makes a CUDA context, and raises where cuDNN no longer serves the GPU.
    try:
        return ".".join(map(str, torch._C._cudnn.getRuntimeVersion()))
    except (AttributeError, RuntimeError, TypeError) as error:
        missing.append(f"the cuDNN version: torch does not tell it ({error})")
        return None


def _nccl(torch: Any, missing: list[str]) -> str | None:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError, TypeError) as error:
        missing.append(f"the NCCL version: torch does not tell it ({error})")
        return None
