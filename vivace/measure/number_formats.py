"""The narrow formats that training uses: what their smallest and largest numbers are."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FORMATS", "NumberFormat"]


@dataclass(frozen=True)
class NumberFormat:
    """``smallest_log2``: of the smallest number above zero; ``normal_log2``: of the smallest with all of its digits."""

    name: str
    smallest_log2: int
    normal_log2: int
    largest: float


# IEEE 754 binary16; bfloat16; OCP 8-bit floating point, revision 1.0, table 2.
FORMATS = (
    NumberFormat("fp16", -24, -14, 65504.0),
    NumberFormat("bf16", -133, -126, (2 - 2**-7) * 2.0**127),
    NumberFormat("fp8 e4m3", -9, -6, 448.0),
    NumberFormat("fp8 e5m2", -16, -14, 57344.0),
)
