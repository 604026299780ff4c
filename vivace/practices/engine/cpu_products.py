"""How large the products of a step on a CPU are, and what bf16 brings at that size. Pure; used by ``find`` only.

A small product takes as long in 16 bits as in 32: most of its time is the call. Autocast adds casts, which are calls
too. So the price depends on the arithmetic in one product, which is counted: other work on the machine does not
change it, as it would change times.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

__all__ = ["bf16_ratio", "flop_per_product"]

_PRODUCT = re.compile(r"aten::(mm|addmm|bmm|baddbmm|mkldnn_convolution|convolution_backward|_slow_conv2d_forward)$")
_IN_ONE_CALL = {"aten::convolution_backward": 2}  # of the weights and of the inputs

# fp32 over bf16 time by FLOPs per product: medians of benchmarks/results/bf16_cpu_sizes.csv (AVX512-BF16).
_RATIOS = ((2.6e5, 0.56), (1.0e6, 0.63), (4.2e6, 0.90), (1.7e7, 1.20), (6.7e7, 1.69), (2.7e8, 2.1))


def flop_per_product(m: Measurement) -> float | None:
    """The mean over the products of a step; None where they were not profiled or counted."""
    operators = m.profile.top if m.profile is not None else ()
    calls = sum(_IN_ONE_CALL.get(one.name, 1) * one.calls_per_step for one in operators if _PRODUCT.match(one.name))
    return m.flops.hardware / calls if m.flops is not None and calls else None


def bf16_ratio(flop: float) -> float:
    """The speedup of forward and backward, between the sizes that were measured; beyond them, that of the last.

    >>> bf16_ratio(1e3), bf16_ratio(1e12)
    (0.56, 2.1)
    """
    if flop <= _RATIOS[0][0]:
        return _RATIOS[0][1]
    for number, (large, high) in enumerate(_RATIOS[1:]):
        small, low = _RATIOS[number]
        if flop <= large:
            return low + (high - low) * math.log(flop / small) / math.log(large / small)
    return _RATIOS[-1][1]
