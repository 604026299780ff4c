"""What a step would take on more ranks, from the run of one process and the links of a machine. Pure arithmetic.

Forward, backward and loading shrink with the batch's share; the optimizer does not (zero1 and fsdp: it does). The
exchange of gradients hides behind the backward pass, all but its last bucket. What this leaves out stands in
``assumptions``.
"""

from __future__ import annotations

from vivace.hardware.catalogue import find_gpu
from vivace.plan.machines.cluster import Site, machine_for, machine_from_gpu
from vivace.plan.time.collectives import Group, all_gather_seconds, all_reduce_seconds
from vivace.records.measurement import Measurement
from vivace.records.scale_check import Prediction

__all__ = ["predict", "site_of"]

_BUCKET_BYTES = 25 * 2**20
_ASSUMED = (
    "kernels are as efficient on a part of the batch as on the whole",
    "ranks are as fast as each other, and the loader keeps up",
)


def site_of(m: Measurement, cluster: str | None) -> tuple[Site | None, str | None]:
    """The machine whose links are counted with, or why there is none."""
    if cluster is not None:
        return machine_for(cluster), None
    spec = find_gpu(m.devices[0]) if m.devices else None
    if spec is None:
        what = f"{m.devices[0]} is not in the catalogue" if m.devices else "this run was on a CPU"
        return None, f"{what}, so no network is known: --cluster NAME names one"
    return machine_from_gpu(spec, gpus_per_node=max(1, len(m.machine.gpus))), None


def predict(m: Measurement, site: Site, ranks: int, mode: str, gradient_bytes: float) -> Prediction:
    """``m``: of one process. Where it ran on another kind of device than the site has, only the exchange is told."""
    machine, group = site.machine, Group.of(site.machine, ranks)
    exchange_s = all_reduce_seconds(machine, group, gradient_bytes)
    if mode == "zero1":  # and the new values are sent round
        exchange_s += all_gather_seconds(machine, group, gradient_bytes)
    elif mode == "fsdp":  # parameters for the forward and for the backward, gradients once
        exchange_s = 3 * all_gather_seconds(machine, group, gradient_bytes)
    last = min(1.0, _BUCKET_BYTES / gradient_bytes) * exchange_s if gradient_bytes else 0.0
    name = f"{machine.name}, {group.nodes} node{'s' if group.nodes > 1 else ''} of {group.per_node}"
    same_device = bool(m.devices) and _same_gpu(m.devices[0], site)
    if m.step_ms is None or not same_device:
        why = "the step was timed on another device than this machine's: it says nothing about its steps there"
        return Prediction(ranks=ranks, network=name, exchange_ms=1e3 * exchange_s, assumptions=(why, *site.assumptions))
    phases = {phase: spread.mean for phase, spread in m.phases_ms.items()}
    whole = phases.get("optimizer", 0.0) if mode == "ddp" else 0.0
    computed = (m.step_ms.mean - whole) / ranks + whole
    hidden_s = min(phases.get("backward", 0.0) / ranks / 1e3, exchange_s - last)
    exposed_ms = 1e3 * (exchange_s - max(0.0, hidden_s))
    step_ms = computed + exposed_ms
    return Prediction(
        ranks=ranks,
        network=name,
        exchange_ms=1e3 * exchange_s,
        exposed_ms=exposed_ms,
        step_ms=step_ms,
        efficiency=m.step_ms.mean / step_ms / ranks,
        assumptions=(*_ASSUMED, *site.assumptions),
    )


def _same_gpu(device: str, site: Site) -> bool:
    spec = find_gpu(device)
    return spec is not None and spec.name == site.machine.gpu.name
