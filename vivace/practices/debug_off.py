"""Debugging switched off: anomaly detection, profilers, gradient checks and blocking launches cost time every step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vivace.measure.inside.patches import in_place_of
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import compute_ms, launch_idle_ms, on_gpu, phase_ms, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, host_share, likely_saved, share_saved, step_model
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.01
# Of the time of kernels that have faster versions (R17 in planted_defects.csv: 7.0 → 6.0 ms); and of the host, half as
# much: all new memory is filled first (convnet in price_gains.csv: 14.1 → 10.6 ms, 628 kernels instead of 363).
_DETERMINISTIC = Shares(0.5, 0.0, 1.0)
_LAUNCHES = 0.5
# Anomaly detection, on the host's clock: convnet 30.6 → 4.4 ms forward, 14.1 → 5.2 backward; convnet_small 9.2 → 1.8
# and 5.4 → 2.5 (price_measurements.jsonl).
_SLOWER_FORWARD = Shares(7.0, 4.5, 9.0)
_SLOWER_BACKWARD = Shares(2.6, 2.0, 3.2)
_LOOKING = Shares(0.5, 0.2, 0.8)  # for NaN: of the time of elementwise kernels and reductions
_CPU_ANOMALY = Shares(0.35, 0.05, 0.9)  # small layers: 0.35 and 0.54 of a step on two cores (price_gains.csv)
_BY_VIVACE = ("anomaly detection", "emit_nvtx", "emit_itt", "CUDA_LAUNCH_BLOCKING")
_LINES = {
    "anomaly detection": "torch.autograd.set_detect_anomaly(False)   # and no `with detect_anomaly():` in the loop",
    "emit_nvtx": "torch.autograd.profiler.emit_nvtx(enabled=False)",
    "emit_itt": "torch.autograd.profiler.emit_itt(enabled=False)",
    "profiler": "with torch.profiler.profile(…) around a few steps only, not around the training",
    "gradcheck": "torch.autograd.gradcheck(…) in a test, not in the loop",
    "gradgradcheck": "torch.autograd.gradgradcheck(…) in a test, not in the loop",
    "CUDA_LAUNCH_BLOCKING": "unset CUDA_LAUNCH_BLOCKING",
    "TORCH_DISTRIBUTED_DEBUG": "unset TORCH_DISTRIBUTED_DEBUG",
    "deterministic algorithms": "torch.use_deterministic_algorithms(False)   # unless runs must repeat bit by bit",
}


class DebugOff(Change):
    """Switches that only watch. Deterministic algorithms change numbers, and a profiler's results may be read: those
    two stay as the script has them."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.off: list[str] = []
        self.patched = False

    def flags(self) -> None:
        if not self.patched:
            self.patched = True
            self._keep_anomaly_detection_off()
            for kind, name in ((torch.autograd.profiler.emit_nvtx, "emit_nvtx"),
                               (torch.autograd.profiler.emit_itt, "emit_itt")):  # fmt: skip
                self._keep_annotations_off(kind, name)
        if torch.is_anomaly_enabled():
            torch.set_anomaly_enabled(False)
            self._tell("anomaly detection")
        if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
            if torch.cuda.is_initialized():
                raise NotApplicable("CUDA has started with CUDA_LAUNCH_BLOCKING=1, which the script sets itself")
            del os.environ["CUDA_LAUNCH_BLOCKING"]
            self._tell("CUDA_LAUNCH_BLOCKING")

    def _keep_anomaly_detection_off(self) -> None:
        """``set_detect_anomaly(True)`` and ``with detect_anomaly():`` both come down to this function."""
        original = torch.set_anomaly_enabled

        def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
            if enabled:
                self._tell("anomaly detection")
            original(False, check_nan)

        torch.set_anomaly_enabled = in_place_of(original, set_anomaly_enabled)

    def _keep_annotations_off(self, kind: Any, name: str) -> None:
        original = kind.__enter__

        def enter(context: Any) -> Any:
            if context.enabled:
                self._tell(name)
            context.enabled = False
            original(context)
            return context

        kind.__enter__ = in_place_of(original, enter)

    def _tell(self, what: str) -> None:
        if what not in self.off:
            self.off.append(what)
        self.done = f"off: {', '.join(self.off)}"


def find(m: Measurement) -> Found | None:
    on = m.structure.debugging
    ours = [name for name in on if name in _BY_VIVACE]
    exposed = max((_at_most_ms(m, name) for name in on), default=0.0)
    worst = max(on, key=lambda name: _at_most_ms(m, name), default="")
    place = m.structure.debugging_where.get(worst)
    if exposed <= _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=exposed,
        likely=_likely(m, worst),
        evidence={"on": ", ".join(on), "backward_ms": round(phase_ms(m, "backward"), 3)},
        says=f"left on: {', '.join(on)}; the cost is known only once it is off, at most {exposed:.1f} ms of a step",
        where=(place.file, place.line) if place else None,
        by_hand="\n".join(_LINES[name] for name in on if name in _LINES),
        why_not=None if ours else f"vivace leaves {' and '.join(on)} to you",
    )


def _at_most_ms(m: Measurement, name: str) -> float:
    """The time in which the switch acts: a bound, far above what most of them cost."""
    if name == "anomaly detection":  # a stack trace for every operator of the forward, a look for NaN in the backward
        return min(compute_ms(m), step_ms(m) - _other_kernels_ms(m))
    if name in ("gradcheck", "gradgradcheck"):
        return phase_ms(m, "backward")
    if name == "TORCH_DISTRIBUTED_DEBUG":
        return phase_ms(m, "communication")
    if name == "deterministic algorithms":  # convolutions, scatters and sums have faster kernels that are not
        return _slower_kernels_ms(m) + launch_idle_ms(m) if on_gpu(m) else 0.0
    if on_gpu(m):
        return launch_idle_ms(m)
    return 0.0 if name == "CUDA_LAUNCH_BLOCKING" else compute_ms(m)


def _slower_kernels_ms(m: Measurement) -> float:
    return role_ms(m, "convolution", "elementwise", "reduction")


def _likely(m: Measurement, name: str) -> Saved | None:
    if name == "anomaly detection":
        return _without_anomaly_detection(m)
    if name == "deterministic algorithms":
        host, device = step_model(m).host_ms, _slower_kernels_ms(m)
        return likely_saved(m, *(Less(_LAUNCHES * share * host, share * device) for share in _DETERMINISTIC))
    if name == "CUDA_LAUNCH_BLOCKING" and on_gpu(m):
        model = step_model(m)  # launching and computing took turns; then they overlap
        turns = model.step_ms - model.loader_ms - model.device_ms
        return Saved(min(turns, model.device_ms), 0.0, turns)
    return None


def _without_anomaly_detection(m: Measurement) -> Saved:
    """A stack trace for every operator of the forward and a read from the GPU after each one of the backward make the
    host the limit. Without them it is as fast as usual, and the GPU may be the limit."""
    if not on_gpu(m) or m.profile is None:
        return share_saved(compute_ms(m), _CPU_ANOMALY)
    model, other = step_model(m), _other_kernels_ms(m)
    looking = role_ms(m, "elementwise", "reduction")
    forward, backward = (host_share(m, phase) for phase in ("forward", "backward"))
    computing = model.step_ms - model.loader_ms

    def saved_ms(slower_forward: float, slower_backward: float, looks: float) -> float:
        host = computing * (1 - forward - backward + forward / slower_forward + backward / slower_backward)
        return max(0.0, computing - max(host, other + (1 - looks) * looking))

    return Saved(*map(saved_ms, _SLOWER_FORWARD, _SLOWER_BACKWARD, _LOOKING))


def _other_kernels_ms(m: Measurement) -> float:
    """Those that stay: a look for NaN is an elementwise kernel and a reduction."""
    roles = m.profile.roles_ms if m.profile is not None and on_gpu(m) else ()
    return role_ms(m, *(role for role in roles if role not in ("elementwise", "reduction", "communication")))


PRACTICE = Practice(
    name="debug_off",
    title="debugging switches off",
    family="structure",
    risk="exact",
    same_losses=False,
    source="R7: autograd.detect_anomaly, set_detect_anomaly(True), profiler.emit_nvtx, profile, gradcheck. R17.",
    why=(
        "Anomaly detection keeps a stack trace for every operator and looks for NaN after each one in the backward. "
        "Profilers and NVTX ranges record every launch. CUDA_LAUNCH_BLOCKING makes the host wait for every kernel. "
        "Deterministic algorithms give up the fastest kernels. Switch them on to find a fault, and off to train. "
        "Without anomaly detection a NaN no longer stops the run."
    ),
    by_hand=("torch.autograd.set_detect_anomaly(False)\nunset CUDA_LAUNCH_BLOCKING   # in the shell or the job script"),
    find=find,
    change=DebugOff,
    order=5,
)
