"""A short profiler window after the timed one: what the GPU did, for how long, and when it did nothing.

The analysis (``analyse``) is a pure function of the trace's events, so that it can be tested without a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vivace.measure.inside.groups import several_ranks, world_size
from vivace.measure.inside.lines.charging import Segment
from vivace.measure.inside.lines.operators import Event, segments_of
from vivace.measure.inside.profiling.exchanges import by_dimension
from vivace.measure.inside.profiling.host_gaps import host_gaps
from vivace.measure.inside.profiling.idle import Interval, idle_during, length, overlap, phases_of, union
from vivace.measure.inside.profiling.kernel_names import CPU_ROLES, FAMILIES, ROLES
from vivace.measure.inside.profiling.widths import products_ms

__all__ = ["ProfileWindow", "analyse", "in_trace_time"]

_TOP = 12
_CLOCKS_APART_US = 1e5  # kernels that begin so long before the first mark: the clocks do not fit together
_FULL_QUEUE = 10.0  # a launch that takes so many times the usual one waits for room in the queue
_PRODUCTS = ("matmul", "convolution", "attention")
_CLOCK = "vivace clock "
_CLOCK_MARKS = 4


class ProfileWindow:
    """torch's profiler over a few steps; with one GPU its activities only, to keep it light."""

    def __init__(self, on_gpu: bool) -> None:
        import torch.profiler as profiler

        self.on_gpu = on_gpu
        self._gaps: list[Segment] = []
        # With several GPUs the host's operators, too: they tell which process group a kernel of NCCL's belongs to.
        host = not on_gpu or several_ranks()
        activities = [profiler.ProfilerActivity.CUDA] * on_gpu + [profiler.ProfilerActivity.CPU] * host
        self._profile = profiler.profile(activities=activities)

    def begin(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the profiler talks to whoever started it, and that is not the user
            self._profile.start()
        self._clocks_ns = (time.perf_counter_ns(), time.time_ns())  # the marks' clock, and the trace's
        self._clock_marks = [] if self.on_gpu else _clock_marks()

    def operators(self) -> list[Segment]:
        """After ``finish``, on a CPU: when the training thread was inside an operator, on the marks' clock."""
        events = self._profile.events() or []
        marks = {e.name: e for e in events if e.name.startswith(_CLOCK)}
        last = marks.get(f"{_CLOCK}{len(self._clock_marks) - 1}")
        if last is None:
            return []
        zero_ns = self._clock_marks[-1] - int(1e3 * last.time_range.start)
        return segments_of(
            Event(zero_ns + int(1e3 * e.time_range.start), zero_ns + int(1e3 * e.time_range.end), e.name)
            for e in events
            if e.thread == last.thread
        )

    def finish(self, steps: int, marks: Sequence[tuple[Any, ...]] = ()) -> dict[str, Any]:
        """``marks``: the recorder's, of these steps. They tell what the host was in while the GPU was idle."""
        self.stop()
        return self._from_trace(steps, marks) if self.on_gpu else self._from_operators(steps)

    def stop(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._profile.stop()

    def _from_trace(self, steps: int, marks: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        handle, path = tempfile.mkstemp(suffix=".json")
        os.close(handle)
        try:
            self._profile.export_chrome_trace(path)
            trace = json.loads(Path(path).read_text())
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._gaps = self._on_the_hosts_clock(trace)
        return analyse(trace["traceEvents"], steps, phases_of(in_trace_time(marks, trace, self._clocks_ns)))

    def _on_the_hosts_clock(self, trace: dict[str, Any]) -> list[Segment]:
        perf_ns, unix_ns = self._clocks_ns
        shift_ns = perf_ns - unix_ns + int(trace.get("baseTimeNanoseconds", 0))
        gaps = host_gaps(trace["traceEvents"])
        return [(int(1e3 * gap.start) + shift_ns, int(1e3 * gap.stop) + shift_ns, gap.whose) for gap in gaps]

    def gaps(self) -> list[Segment]:
        """After ``finish``, on a GPU: when it had nothing to do, on the marks' clock, and whose fault that is."""
        return self._gaps

    def _from_operators(self, steps: int) -> dict[str, Any]:
        operators = sorted(self._profile.key_averages(), key=lambda e: -e.self_cpu_time_total)
        total = sum(e.self_cpu_time_total for e in operators) or 1.0
        return {
            "steps": steps,
            "roles_ms": _roles([(e.key, e.self_cpu_time_total / 1e3) for e in operators], CPU_ROLES, steps),
            "top": [
                {
                    "name": e.key,
                    "ms_per_step": e.self_cpu_time_total / 1e3 / steps,
                    "calls_per_step": e.count / steps,
                    "share": e.self_cpu_time_total / total,
                }
                for e in operators[:_TOP]
            ],
        }


def _clock_marks() -> list[int]:
    """Moments that the profiler records as well. The first ones are slow; the last tells how the clocks fit."""
    from torch.profiler import record_function

    moments = []
    for number in range(_CLOCK_MARKS):
        before_ns = time.perf_counter_ns()
        with record_function(f"{_CLOCK}{number}"):
            moments.append((before_ns + time.perf_counter_ns()) // 2)
    return moments


def in_trace_time(
    marks: Sequence[tuple[Any, ...]], trace: dict[str, Any], clocks_ns: tuple[int, int]
) -> list[tuple[str, float]]:
    """The recorder's marks as ``(code, microseconds)`` on the clock of the trace's events, which counts from a base."""
    perf_ns, unix_ns = clocks_ns
    base_ns = int(trace.get("baseTimeNanoseconds", 0))
    return [(mark[0], (mark[1] - perf_ns + unix_ns - base_ns) / 1e3) for mark in marks]


def analyse(
    events: Iterable[dict[str, Any]], steps: int, phases: dict[str, list[Interval]] | None = None
) -> dict[str, Any]:
    """Busy share, idle gaps, top kernels, tensor-core share, copies by kind, communication exposed and hidden, and what
    the host did meanwhile."""
    events = list(events)
    work = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not work:
        return {"steps": steps, "top": [], "runtime": runtime_calls(events, steps)}
    spans = [(float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in work]
    begin, end = min(s for s, _ in spans), max(e for _, e in spans)
    busy = union(spans)
    kernels = [(e, span) for e, span in zip(work, spans) if e["cat"] == "kernel"]
    exchanges = [(e, span) for e, span in kernels if family(e["name"]) == "communication"]
    communication = [span for _, span in exchanges]
    computing = [span for e, span in kernels if family(e["name"]) != "communication"]
    kernel_us = sum(e - s for s, e in computing) or 1.0
    tensor_us = sum(e["dur"] for e, _ in kernels if family(e["name"]) == "tensor_core")
    exposed_us = length(union(communication)) - overlap(union(communication), union(computing))
    gaps = [after[0] - before[1] for before, after in zip(busy, busy[1:])]
    return {
        "steps": steps,
        "busy_share": length(busy) / (end - begin) if end > begin else None,
        "idle_ms_per_step": sum(gaps) / 1e3 / steps,
        "longest_gap_ms": max(gaps, default=0.0) / 1e3,
        "kernels_per_step": len(kernels) / steps,
        "tensor_core_share": tensor_us / kernel_us,
        "communication_ms_per_step": length(union(communication)) / 1e3 / steps,
        "communication_exposed_ms_per_step": exposed_us / 1e3 / steps,
        "exchanges": by_dimension(exchanges, computing, steps, world_size()),
        "copies": _copies([e for e in work if e["cat"] == "gpu_memcpy"], steps),
        "roles_ms": _roles([(e["name"], e["dur"] / 1e3) for e, _ in kernels], ROLES, steps),
        "products_ms": products_ms(_products([e for e, _ in kernels]), steps),
        "top": _top([e for e, _ in kernels], steps),
        "idle_during_ms": _idle(busy, events, phases, steps) if phases else {},
        **_host(events, steps),
        "runtime": runtime_calls(events, steps),
    }


def _idle(
    busy: list[Interval], events: list[dict[str, Any]], phases: dict[str, list[Interval]], steps: int
) -> dict[str, float]:
    """Idle time per step by what the host was in; nothing where the two clocks do not seem to fit together."""
    marked = [span for spans in phases.values() for span in spans]
    first, last = min(start for start, _ in marked), max(stop for _, stop in marked)
    if not first - _CLOCKS_APART_US < busy[0][0] < last or busy[-1][1] < first:
        return {}
    gaps = [(busy[n][1], busy[n + 1][0]) for n in range(len(busy) - 1)]
    calls = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("cuda_runtime", "cuda_driver")]
    return {name: ms / steps for name, ms in idle_during(gaps, phases, calls).items()}


def _host(events: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """What the host needs for a step, and how long it waits for the GPU: in synchronising calls, and in launches that
    find the queue full. The window ends in a synchronisation, so a host that runs ahead is seen to wait there."""
    calls = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("cuda_runtime", "cuda_driver")]
    launches = sorted(float(e["dur"]) for e in calls if "launch" in e["name"].lower())
    if not launches:
        return {}
    usual = launches[len(launches) // 2]
    spans = [(float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in calls]
    waits = [
        (start + usual, stop) if "launch" in e["name"].lower() else (start, stop)
        for e, (start, stop) in zip(calls, spans)
        if _is_wait(e["name"].lower(), stop - start, usual)
    ]
    waited = length(union(waits))
    whole = max(stop for _, stop in spans) - min(start for start, _ in spans)
    return {"host_ms_per_step": (whole - waited) / 1e3 / steps, "host_waits_ms_per_step": waited / 1e3 / steps}


def _is_wait(name: str, us: float, usual_launch_us: float) -> bool:
    if "launch" in name:
        return us > _FULL_QUEUE * usual_launch_us
    return "synchronize" in name or name in ("cudamemcpy", "cudafree")


def family(name: str) -> str:
    """``communication``, ``tensor_core``, ``simt`` or ``other``, by the kernel's name."""
    name = name.lower()
    for kind, parts in FAMILIES.items():
        if any(part in name for part in parts):
            return kind
    return "other"


def _products(kernels: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(e["name"], e["dur"] / 1e3) for e in kernels if _role(e["name"], ROLES) in _PRODUCTS]


def _roles(work: list[tuple[str, float]], rules: Mapping[str, Sequence[str]], steps: int) -> dict[str, float]:
    """Milliseconds per step by what the work is for (convolution, matmul, layout, …); the first rule that fits wins."""
    sums: dict[str, float] = defaultdict(float)
    for name, ms in work:
        sums[_role(name, rules)] += ms
    return {role: ms / steps for role, ms in sorted(sums.items(), key=lambda item: -item[1])}


def _role(name: str, rules: Mapping[str, Sequence[str]]) -> str:
    name = name.lower()
    return next((role for role, parts in rules.items() if any(part in name for part in parts)), "other")


def _copies(copies: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """By direction and kind of host memory, as the trace names them: "Memcpy HtoD (Pageable -> Device)"."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for event in copies:
        total = sums[event["name"]]
        total[0] += 1
        total[1] += event["dur"] / 1e3
        total[2] += event.get("args", {}).get("bytes", 0)
    return [
        {"kind": kind, "per_step": n / steps, "ms_per_step": ms / steps, "mib_per_step": size / 2**20 / steps}
        for kind, (n, ms, size) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]


def runtime_calls(events: Iterable[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """The host's calls into the CUDA runtime and driver, the costliest first."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in ("cuda_runtime", "cuda_driver"):
            sums[event["name"]][0] += event["dur"] / 1e3
            sums[event["name"]][1] += 1
    ranked = sorted(sums.items(), key=lambda item: -item[1][0])[:_TOP]
    return [{"name": name, "per_step": n / steps, "ms_per_step": ms / steps} for name, (ms, n) in ranked]


def _top(kernels: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in kernels:
        sums[event["name"]][0] += event["dur"] / 1e3
        sums[event["name"]][1] += 1
    total = sum(ms for ms, _ in sums.values()) or 1.0
    ranked = sorted(sums.items(), key=lambda item: -item[1][0])[:_TOP]
    return [
        {
            "name": name[:160],
            "ms_per_step": ms / steps,
            "calls_per_step": calls / steps,
            "share": ms / total,
            "family": family(name),
        }
        for name, (ms, calls) in ranked
    ]
