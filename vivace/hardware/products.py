"""How well a matrix product of given sizes suits a GPU: arithmetic intensity, tiles, waves, alignment. Pure.

Used by ``plan`` (which predicts times) and by practices (which look at layers that were seen).
"""

from __future__ import annotations

from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

__all__ = [
    "TILES", "alignment_share", "arithmetic_intensity", "bytes_per_element", "layer_checklists", "round_up",
    "tensor_core_multiple", "tile_efficiency", "wave_efficiency",
]  # fmt: skip

# Tile shapes that cuBLAS and CUTLASS use for tensor cores, with the share of the best rate that each can
# reach (smaller tiles reuse less from shared memory). NVIDIA "Matrix Multiplication Background", tile table.
TILES: tuple[tuple[int, int, float], ...] = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.93),
    (128, 64, 0.76),
    (64, 128, 0.76),
    (64, 64, 0.6),
)
_CHECKLIST_NAMES = {"bf16": "fp16", "fp8": "int8"}


def arithmetic_intensity(m: int, n: int, k: int, bytes_per_element: float = 2.0) -> float:
    """FLOPs per byte moved when each operand is read once and the result written once."""
    return 2.0 * m * n * k / (bytes_per_element * (m * k + n * k + m * n))


def wave_efficiency(m: int, n: int, sms: int, tile: tuple[int, int] = (256, 128)) -> float:
    """Share of multiprocessors that work, over all waves: 117 tiles on 108 make two waves, 54 %."""
    tiles = ceil(m / tile[0]) * ceil(n / tile[1])
    return tiles / (ceil(tiles / sms) * sms)


def tile_efficiency(m: int, n: int, tile: tuple[int, int] = (256, 128)) -> float:
    """Share of the tiles' area that the result fills."""
    return m * n / (ceil(m / tile[0]) * tile[0] * ceil(n / tile[1]) * tile[1])


def alignment_share(n: int, k: int, bytes_per_element: int = 2, hopper: bool = False) -> float:
    """Share of the rate left when rows do not start on 16 bytes: a vocabulary of 50,257 halves its product.

    NVIDIA "Matrix Multiplication Background": tensor cores want multiples of 16 bytes; cuBLAS falls back
    to kernels with narrower loads otherwise. Hopper loses far more (``alignment.toml``).
    """
    aligned = min(_power_of_two_in(n), _power_of_two_in(k)) * bytes_per_element
    if aligned >= 16:
        return 1.0
    shares = _alignment()["hopper" if hopper else "older"]["two_bytes" if bytes_per_element <= 2 else "four_bytes"]
    return shares[str(max(2, aligned))]


@cache
def _alignment() -> dict[str, dict[str, dict[str, float]]]:
    return _table("alignment.toml")


def _power_of_two_in(number: int) -> int:
    return number & -number


def bytes_per_element(arithmetic: str) -> int:
    return {"fp32": 4, "tf32": 4, "fp8": 1, "int8": 1}.get(arithmetic, 2)


def round_up(value: int, multiple: int) -> int:
    return ceil(value / multiple) * multiple


def tensor_core_multiple(arithmetic: str) -> tuple[int, int]:
    """Multiples for the sizes of a fully connected layer: (needed by tensor cores, best on an A100)."""
    if arithmetic == "fp32":  # no tensor cores; a row of 128 bytes is still the best
        return 1, 32
    checklist = layer_checklists()["fully_connected"]
    name = _CHECKLIST_NAMES.get(arithmetic, arithmetic)
    return checklist["divisible"][name], checklist["best"][name]


@cache
def layer_checklists() -> dict[str, dict[str, Any]]:
    """NVIDIA's checklists by kind of layer, as in ``layer_sizes.toml``."""
    return _table("layer_sizes.toml")


def _table(file: str) -> dict[str, Any]:
    """Only the command reads tables. Practices import this module in the user's process, whose Python may be older."""
    import tomllib  # novm: the command's Python has it

    return tomllib.loads(Path(__file__).with_name(file).read_text())
