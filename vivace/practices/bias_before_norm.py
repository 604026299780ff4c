"""No bias before batch norm: the norm subtracts the mean, and the bias with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import launch_idle_ms, on_gpu, role_ms, step_ms
from vivace.practices.engine.step_model import Less, likely_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.01
# A bias reads and writes its layer's output once more; a ReLU in place does so twice, forward and backward. (On an
# H200, benchmarks/defects/r05, 0.41 of the elementwise time was the biases'.)
_OF_ELEMENTWISE = 0.5
_LAUNCHES = 2  # of each bias: added in the forward, summed up in the backward
_HOST_BOUND = 0.2  # of the step idle between kernels: every launch that is saved is saved in full


def find(m: Measurement) -> Found | None:
    names = m.structure.biases_before_norm
    convolutions = m.structure.modules.get("convolution", 0)
    if not names or not convolutions or not on_gpu(m):  # oneDNN adds the bias within the convolution
        return None
    share = min(1.0, len(names) / convolutions)
    kernels = share * (_OF_ELEMENTWISE * role_ms(m, "elementwise") + role_ms(m, "reduction"))
    launches = _launches_ms(m, len(names))
    exposed = share * role_ms(m, "elementwise", "reduction") + 2 * launches
    if exposed < _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=exposed,
        likely=likely_saved(m, *(Less(launches * share, kernels * share) for share in (0.7, 0.0, 1.5))),
        evidence={
            "biases": len(names),
            "convolutions": convolutions,
            "elementwise_ms": round(role_ms(m, "elementwise"), 3),
            "reduction_ms": round(role_ms(m, "reduction"), 3),
            "first": ", ".join(names[:3]),
        },
        says=(
            f"{len(names)} of {convolutions} convolutions add a bias that the batch norm after them takes away: "
            f"at most {exposed:.1f} ms of a step"
        ),
        why_not="without its biases the model would not load its own checkpoints",
    )


def _launches_ms(m: Measurement, biases: int) -> float:
    """What the host needs to launch their kernels, where the GPU waits for the host."""
    if m.profile is None or not m.profile.kernels_per_step or launch_idle_ms(m) < _HOST_BOUND * step_ms(m):
        return 0.0
    return _LAUNCHES * biases * step_ms(m) / m.profile.kernels_per_step


PRACTICE = Practice(
    name="bias_before_norm",
    title="no bias before batch norm",
    family="structure",
    risk="rounding",
    source="R5: nn.Conv2d(bias=False) directly before BatchNorm; torchvision's models already do.",
    why=(
        "Batch norm subtracts the mean of each channel, and a bias is part of that mean: it changes nothing. It still "
        "costs a pass over the activation forward, a sum over it backward, and an optimizer update."
    ),
    by_hand="nn.Conv2d(in_channels, out_channels, 3, bias=False), nn.BatchNorm2d(out_channels)",
    find=find,
)
