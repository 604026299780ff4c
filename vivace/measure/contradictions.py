"""Whether the kernels that ran can be those of the arithmetic that was counted.

FLOPs are counted in one step that runs uncompiled. Compiled code may do something else: code of another number format
from a mixed-up cache, a practice that took no effect. Then neither the arithmetic nor an MFU may be told as if it were
right. Careful on purpose: it takes kernels whose names say the opposite for most of the products' time, and next to
none that say what was counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from vivace.records.measurement import Contradiction, ContradictionKind, Flops, Profile

__all__ = ["contradictions"]

_WIDTHS = {"fp32": "32", "tf32": "32", "bf16": "16", "fp16": "16"}
_KINDS: tuple[tuple[str, str, ContradictionKind], ...] = (
    ("16", "32", "counted-16-ran-32"),
    ("32", "16", "counted-32-ran-16"),
)
_COUNTED = 0.8  # of the FLOPs, in one width
_NAMED_OTHERWISE = 0.5  # of the products' time
_NAMED_AS_COUNTED = 0.05  # of it: a job in bf16 has some kernels that say so, whatever cuDNN does with the others
_FASTER = 1.05  # than all FLOPs at their peaks: the catalogue's peaks are at boost clock, and nothing gets near them


def contradictions(
    flops: Flops | None, profile: Profile | None, step_s: float | None, peaks_tflops: Mapping[str, float | None]
) -> tuple[Contradiction, ...]:
    """``peaks_tflops``: of the devices of one rank, by arithmetic; empty where the catalogue has none."""
    if flops is None or not flops.by_type or not sum(flops.by_type.values()):
        return ()
    found = (_other_kernels(flops, profile), _faster_than_possible(flops, profile, step_s, peaks_tflops))
    return tuple(one for one in found if one is not None)


def _other_kernels(flops: Flops, profile: Profile | None) -> Contradiction | None:
    total_ms = sum(profile.products_ms.values()) if profile is not None else 0.0
    if profile is None or not total_ms:
        return None
    for counted, ran, kind in _KINDS:
        share = _share_of_width(flops, counted)
        otherwise = profile.products_ms.get(ran, 0.0) / total_ms
        as_counted = profile.products_ms.get(counted, 0.0) / total_ms
        if share >= _COUNTED and otherwise >= _NAMED_OTHERWISE and as_counted <= _NAMED_AS_COUNTED:
            return _of_kernels(kind, share, otherwise, profile)
    return None


def _share_of_width(flops: Flops, width: str) -> float:
    counted = sum(count for kind, count in flops.by_type.items() if _WIDTHS.get(kind) == width)
    return counted / sum(flops.by_type.values())


def _of_kernels(kind: ContradictionKind, share: float, otherwise: float, profile: Profile) -> Contradiction:
    counted, ran = ("16-bit", "32-bit") if kind == "counted-16-ran-32" else ("32-bit", "16-bit")
    return Contradiction(
        kind=kind,
        says=(
            f"{share:.0%} of the FLOPs are counted as {counted}, but kernels in {ran} formats take {otherwise:.0%} of "
            "the products' time: the compiled code that ran is not the model's. Delete torch's compile cache "
            "(TORCHINDUCTOR_CACHE_DIR) and measure again"
        ),
        evidence={"counted_share": round(share, 3), "ran_share": round(otherwise, 3)}
        | {f"products_{width}_ms": round(ms, 3) for width, ms in profile.products_ms.items()},
    )


def _faster_than_possible(
    flops: Flops, profile: Profile | None, step_s: float | None, peaks_tflops: Mapping[str, float | None]
) -> Contradiction | None:
    """Attention is counted in full although a causal kernel does half of it: jobs with such kernels are left out."""
    peaks = {kind: peaks_tflops.get(kind) for kind in flops.by_type}
    if not step_s or None in peaks.values() or profile is None or profile.roles_ms.get("attention"):
        return None
    least_s = sum(count / (peak * 1e12) for kind, count in flops.by_type.items() if (peak := peaks[kind]))
    if least_s <= _FASTER * step_s:
        return None
    return Contradiction(
        kind="faster-than-peak",
        says=(
            f"the FLOPs that were counted take at least {least_s * 1e3:.1f} ms at the GPU's peak, but a step takes "
            f"{step_s * 1e3:.1f} ms: it does less than was counted, or in another number format"
        ),
        evidence={"least_ms": round(least_s * 1e3, 3), "step_ms": round(step_s * 1e3, 3)},
    )
