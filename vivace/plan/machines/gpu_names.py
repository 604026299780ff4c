"""Which catalogued GPU a table means: "a100_80gb", "NVIDIA DGX-1 (8x V100 16GB)", "H100 80GB 700W", "1x
4090".

Reads the catalogue and the planner's own small list of consumer parts. Called by the table reader and the
CLI.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path

from vivace.errors import UserError
from vivace.hardware.catalogue import find_gpu, load_catalogue
from vivace.hardware.schema import Place, build, did_you_mean
from vivace.hardware.specs import GpuSpec

__all__ = ["gpu_from_words", "known_gpu"]

FILE = Path(__file__).parents[1] / "data" / "gpus.toml"


@lru_cache(maxsize=1)
def _extra() -> dict[str, GpuSpec]:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))["gpu"]
    return {
        key: build(GpuSpec, table, Place(FILE.name, f"gpu.{key}"), {"key": key, "defined_in": "vivace.plan"})
        for key, table in tables.items()
    }


def _all() -> dict[str, GpuSpec]:
    return {**_extra(), **load_catalogue().gpus}


def known_gpu(name: str) -> GpuSpec:
    """A GPU by a name that a person typed; an unknown one is refused with the nearest names."""
    spec = find_gpu(name) or gpu_from_words(name)
    if spec is None:
        near = did_you_mean(name.strip().lower(), _all()) or "vivace hardware --gpus lists all"
        raise UserError(f"no GPU is called {name!r}", hint=near)
    return spec


def gpu_from_words(text: str, memory_gb: float | None = None) -> GpuSpec | None:
    """The GPU that free text means; ``memory_gb`` chooses between sizes of the same product."""
    words = text.strip().lower().replace("_", " ").replace("-", " ")
    exact = find_gpu(text) or _extra().get(text.strip().lower())
    if exact is not None:
        return exact
    product = next((name for name in _PRODUCTS if re.search(rf"(?<![a-z0-9]){name}(?![0-9])", words)), None)
    if product is None:
        return None
    memory = re.search(r"(\d+)\s*gi?b", words)
    wanted = float(memory[1]) if memory else memory_gb
    candidates = [spec for key, spec in _all().items() if re.search(rf"(^|-){product}(-|$)", key)]
    bus = "pcie" in words
    candidates = [s for s in candidates if ("pcie" in s.key) == bus] or candidates
    if "hbm2e" in words or "grand teton" in words:
        candidates = [s for s in candidates if "teton" in s.key] or candidates
    else:
        candidates = [s for s in candidates if "teton" not in s.key and "custom" not in s.key] or candidates
    if not candidates:
        return None
    if wanted is None:
        # Without a size, the part that servers of that kind mostly have: the largest.
        return max(candidates, key=lambda spec: spec.memory_gb or 0)
    return min(candidates, key=lambda spec: abs((spec.memory_gb or 0) - wanted))


_PRODUCTS = (
    "gb200",
    "b200",
    "gh200",
    "h200",
    "h100",
    "a100",
    "v100",
    "p100",
    "a800",
    "h800",
    "h20",
    "l40s",
    "l40",
    "l4",
    "a10g",
    "a10",
    "a40",
    "a6000",
    "a30",
    "t4",
    "5090",
    "4090",
    "3090",
    "2080ti",
)
