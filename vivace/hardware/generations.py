"""What all GPUs of one compute capability share: the units of a multiprocessor (SM) and the number formats.

Reads ``compute_capabilities.toml``. Called by ``vivace hardware``. A value that no source gives is None.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vivace.hardware.schema import Place, build
from vivace.hardware.specs import GpuSpec

__all__ = ["Generation", "generation_of"]

FILE = Path(__file__).with_name("compute_capabilities.toml")
BYTES_PER_REGISTER = 4


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One compute capability. ``l1_shared_kib`` is the memory that L1 and shared memory divide between them.

    A block gets shared memory in units of ``shared_unit_bytes``; the driver adds ``reserved_shared_bytes`` to
    each, where it reserves any.
    """

    registers_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    shared_kib_per_sm: int
    l1_shared_kib: int | None = None
    cuda_cores_per_sm: int | None = None
    tensor_cores_per_sm: int | None = None
    tensor_core_generation: int | None = None
    tensor_core_formats: tuple[str, ...] = ()
    cuda_core_formats: tuple[str, ...] = ()
    shared_unit_bytes: int | None = None
    reserved_shared_bytes: int | None = None

    @property
    def register_kib_per_sm(self) -> float:
        return self.registers_per_sm * BYTES_PER_REGISTER / 1024


def generation_of(spec: GpuSpec) -> Generation | None:
    """The generation of a catalogued GPU; None when its compute capability is not in the table."""
    return _generations().get(spec.compute_capability or "")


@cache
def _generations() -> dict[str, Generation]:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {capability: build(Generation, table, Place(FILE.name, capability)) for capability, table in tables.items()}
