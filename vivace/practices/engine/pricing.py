"""Figures that several practices price themselves with, read from a ``Measurement``. Pure; used by ``find`` only.

Prices are upper bounds: what could be saved if the practice removed all the time that it can act on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.measure.inside.profiling.idle import ALLOCATING
from vivace.protocol.ending import Ending

if TYPE_CHECKING:
    from vivace.records.measurement import Copies, Measurement

__all__ = [
    "allocator_ms", "arithmetic_share", "busy_ms", "capability", "compute_ms", "copies_to_gpu", "has_convolutions",
    "idle_ms", "idle_part_ms", "launch_idle_ms", "lines_ms", "memory_limit", "on_gpu", "optimizer_bytes",
    "out_of_memory", "peak", "phase_ms", "products_left_ms", "products_ms", "recurrent_ms", "retries_ms", "role_ms",
    "step_ms",
]  # fmt: skip

_TILE = 128  # of the result, that one multiprocessor computes at a time
_LONGER = 0.9  # the timed steps' time over the profiled ones': less is no accident

PRODUCTS = ("convolution", "matmul", "attention")
MEMORY_BOUND = ("elementwise", "norm", "softmax", "pooling", "reduction", "other")


def step_ms(m: Measurement) -> float:
    return m.step_ms.mean if m.step_ms else 0.0


def phase_ms(m: Measurement, phase: str) -> float:
    return m.phases_ms[phase].mean if phase in m.phases_ms else 0.0


def compute_ms(m: Measurement) -> float:
    return phase_ms(m, "forward") + phase_ms(m, "backward")


def lines_ms(m: Measurement) -> float:
    """Of a step, what the ledger charges to lines of Python and other causes outside of torch; 0 where it is the GPU
    that computes."""
    outside = ("host", "logging", "saving", "gc", "no core")
    return (
        sum(row.ms for row in m.ledger.rows if row.cause in outside) if m.ledger is not None and not on_gpu(m) else 0.0
    )


def on_gpu(m: Measurement) -> bool:
    return m.clock == "gpu"


def capability(m: Measurement) -> tuple[int, int]:
    """CUDA compute capability of the (first) GPU in use; (0, 0) without one."""
    text = m.machine.gpus[0].compute_capability if m.machine.gpus and on_gpu(m) else None
    major, _, minor = (text or "0.0").partition(".")
    return int(major), int(minor)


def peak(m: Measurement, arithmetic: str) -> float | None:
    """Dense peak of the GPU in use, TFLOP/s, from the catalogue."""
    return m.machine.gpus[0].dense_peak_tflops.get(arithmetic) if m.machine.gpus and on_gpu(m) else None


def role_ms(m: Measurement, *roles: str) -> float:
    """Kernel time per step by what it is for, from the profiler window, scaled to the step as timed without it."""
    if m.profile is None:
        return 0.0
    return _scale(m) * sum(m.profile.roles_ms.get(role, 0.0) for role in roles)


def _scale(m: Measurement) -> float:
    """From the profiled steps to those that were timed.

    Kernels run as fast under the profiler, but where inputs vary its few steps may be longer than most. Operators on a
    CPU do not, so their shares are taken. Communication runs beside the kernels.
    """
    roles = m.profile.roles_ms if m.profile is not None else {}
    total = sum(ms for role, ms in roles.items() if role != "communication")
    if not total:
        return 1.0 if on_gpu(m) else 0.0
    return min(1.0, step_ms(m) / total) if on_gpu(m) else compute_ms(m) / total


def _profiled_longer_steps(m: Measurement) -> bool:
    return on_gpu(m) and m.inputs_vary and _scale(m) < _LONGER


def busy_ms(m: Measurement) -> float | None:
    """GPU time with a kernel or a copy running, per step; None where it was not profiled.

    What runs beside something else (communication, copies on a stream of their own) counts once.
    """
    if m.profile is None or not on_gpu(m) or not m.profile.roles_ms:
        return None
    every = sum(m.profile.roles_ms.values()) + sum(copy.ms_per_step for copy in m.profile.copies)
    one_by_one = _scale(m) * every
    share, idle = m.profile.busy_share, m.profile.idle_ms_per_step
    if share is None or not idle or share == 1:
        return one_by_one
    return min(one_by_one, idle * share / (1 - share))  # together, as long as they took; a scale would count twice


def idle_ms(m: Measurement) -> float:
    """GPU time with nothing running, per step."""
    busy = busy_ms(m)
    if m.profile is not None and m.profile.busy_share is not None and _profiled_longer_steps(m):
        return (1 - m.profile.busy_share) * step_ms(
            m
        )  # of those steps; a little too much, for profiling takes time too
    return max(0.0, step_ms(m) - busy) if busy is not None else 0.0


def idle_part_ms(m: Measurement, part: str) -> float:
    """The part of the idle time in which the GPU waits for this (a name in ``idle_during_ms``); 0 where not known."""
    parts = m.profile.idle_during_ms if m.profile is not None else {}
    total = sum(parts.values())
    return idle_ms(m) * parts.get(part, 0.0) / total if total else 0.0


def launch_idle_ms(m: Measurement) -> float:
    """Idle time that neither the loader nor a copy explains: the host launches too slowly, or waits for the GPU."""
    return max(0.0, idle_ms(m) - phase_ms(m, "loader"))


def copies_to_gpu(m: Measurement, memory: str = "") -> list[Copies]:
    """What was copied to the GPU, from ``Pinned`` or ``Pageable`` memory of the host or from both."""
    kinds = m.profile.copies if m.profile is not None else ()
    return [copy for copy in kinds if f"HtoD ({memory}" in copy.kind]


def arithmetic_share(m: Measurement, *kinds: str) -> float:
    """The share of the counted FLOPs in these arithmetics (fp32, tf32, bf16, …)."""
    if m.flops is None or not m.flops.by_type:
        return 0.0
    return sum(m.flops.by_type.get(kind, 0) for kind in kinds) / sum(m.flops.by_type.values())


def products_ms(m: Measurement) -> dict[str, float]:
    """Time of the products by arithmetic, without those of recurrent layers that another arithmetic would not speed up.

    What takes its time in each arithmetic is not seen: taken is the time that its FLOPs would take at its own peak.
    """
    plain, recurrent = _split_products(m)
    if not _fill_the_gpu(m):
        recurrent = {kind: ms for kind, ms in recurrent.items() if kind == "fp32"}
    return {kind: plain.get(kind, 0.0) + recurrent.get(kind, 0.0) for kind in {*plain, *recurrent}}


# The share of its dense peak that a large product reaches on an H200: R17 in planted_defects.csv (0.584 TFLOP a step,
# 12.1 ms in fp32, 2.9 in tf32), R3 (4.67 TFLOP, 18.2 ms in tf32, 8.9 in bf16), less what is not products there.
_REACHED = {"fp32": 0.75, "tf32": 0.57, "fp16": 0.65, "bf16": 0.65}


def products_left_ms(m: Measurement, kind: str, arithmetic: str, not_arithmetic: float) -> float:
    """What is left of the time of the products of one kind when they run in another arithmetic.

    As far as they reach the rate of a large product now, their time shrinks by the ratio of the rates that large ones
    reach. The rest of it is memory and latency, of which the share ``not_arithmetic`` is left.
    """
    now_ms, old, new = products_ms(m).get(kind, 0.0), peak(m, kind), peak(m, arithmetic)
    if not old or not new or not now_ms or m.flops is None:
        return now_ms * max(0.5, not_arithmetic)
    old_rate, new_rate = old * _REACHED.get(kind, 0.6), new * _REACHED.get(arithmetic, 0.6)
    reached = m.flops.by_type.get(kind, 0) / (now_ms * 1e9) / old_rate  # FLOPs in ms over TFLOP/s
    bound = min(1.0, reached)
    return now_ms * (bound * min(1.0, old_rate / new_rate) + (1 - bound) * not_arithmetic)


def recurrent_ms(m: Measurement) -> float:
    """Time of the products of recurrent layers."""
    return sum(_split_products(m)[1].values())


def _split_products(m: Measurement) -> tuple[dict[str, float], dict[str, float]]:
    """Time of other products, and of those of recurrent layers, by arithmetic. cuDNN runs these as ordinary products,
    and some as kernels of its own, which can be told apart."""
    ordinary, own = role_ms(m, *PRODUCTS), role_ms(m, "recurrent")
    if m.flops is None or not m.flops.by_type:
        return {"fp32": ordinary}, {}
    peaks = {kind: peak(m, kind) for kind in m.flops.by_type}
    cost = {kind: 1.0 / rate if rate and None not in peaks.values() else 1.0 for kind, rate in peaks.items()}
    inside = {kind: count * cost.get(kind, 1.0) for kind, count in m.flops.recurrent.items()}
    outside = {k: count * cost[k] - inside.get(k, 0.0) for k, count in m.flops.by_type.items()}
    total = sum(inside.values()) + sum(outside.values()) or 1.0
    share = max(sum(inside.values()) / total, own / (ordinary + own) if inside and own else 0.0)
    ms_outside, ms_inside = (1 - share) * (ordinary + own), share * (ordinary + own)
    return _spread(outside, ms_outside), _spread(inside, ms_inside)


def _spread(weights: dict[str, float], ms: float) -> dict[str, float]:
    total = sum(weights.values())
    return {kind: ms * weight / total for kind, weight in weights.items()} if total > 0 else {}


def _fill_the_gpu(m: Measurement) -> bool:
    """Whether one step through time of the recurrent layers is a product large enough for all multiprocessors.

    Smaller ones take as long in a shorter number type. An LSTM of 2 x 1024 at a batch of 128 ran at 0.85 of its speed
    with bf16 instead of TF32 on an H200 (benchmarks/results/public_scripts_trials.csv): 32 tiles for 132 of them.
    """
    gates = {"LSTM": 4, "GRU": 3}
    sms = m.machine.gpus[0].sm_count if m.machine.gpus and on_gpu(m) else None
    results = [(m.batch_size or 0) * gates.get(one.name, 1) * one.hidden for one in m.structure.recurrent]
    return sms is None or any(size >= sms * _TILE * _TILE for size in results)


def has_convolutions(m: Measurement) -> bool:
    return m.structure.conv_weights_channels_last is not None


_NEARLY_FULL = 0.9


def out_of_memory(m: Measurement) -> bool:
    """Whether the run ended, or an allocation failed, for want of GPU memory."""
    device = m.memory.device
    return m.ending is Ending.OUT_OF_MEMORY or bool(device and device.out_of_memory_errors)


def memory_limit(m: Measurement) -> str | None:
    """Why GPU memory holds this job back, in words; None when it does not."""
    device = m.memory.device
    if not on_gpu(m) or device is None:
        return None
    if out_of_memory(m):
        return f"it ran out of memory on a card of {device.total_gib:.1f} GiB"
    if device.alloc_retries:
        return f"the allocator emptied its cache and tried again {device.alloc_retries} times"
    if device.allocated_peak_gib > _NEARLY_FULL * device.total_gib:
        return f"{device.allocated_peak_gib:.1f} of {device.total_gib:.1f} GiB are in use at the peak"
    return None


def allocator_ms(m: Measurement) -> float:
    """Host time per step in calls that take memory from the driver or give it back, as profiled."""
    calls = m.profile.runtime if m.profile is not None else ()
    return sum(call.ms_per_step for call in calls if call.name.lower().startswith(ALLOCATING))


_MS_PER_RETRY = 100.0  # at most: gigabytes are given back and taken again. R16 (planted_defects.csv): 2.5 ms per step


def retries_ms(m: Measurement) -> float:
    """Upper bound of what allocation retries cost a step: each frees the cache and waits for the GPU.

    Rare ones make rare slow steps: what the mean lies above the median. Frequent ones hide in the idle time.
    """
    device = m.memory.device
    if device is None or not device.alloc_retries or m.step_ms is None:
        return 0.0
    if device.alloc_retries < 0.5 * (m.steps + m.warmup_steps):
        retries = device.alloc_retries / (m.steps + m.warmup_steps)
        return max(_MS_PER_RETRY * retries, m.step_ms.mean - m.step_ms.median)
    return launch_idle_ms(m)


_STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "SGD": 1, "Muon": 1}


def optimizer_bytes(m: Measurement) -> int:
    """Weights, gradients and optimizer state of the trained parameters in 4 bytes each: what does not depend on the
    batch. State by the optimizer's name: two values a weight for Adam's family, one (momentum) otherwise."""
    states = max((_STATES.get(o.name, 1) for o in m.structure.optimizers), default=1)
    return (2 + states) * 4 * (m.trainable_parameters or 0)
