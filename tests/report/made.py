"""Records made by hand, with names and messages that a page must not take for HTML."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType

from vivace.records.finding import Finding, Place, Risk
from vivace.records.machine import Cpu, Gpu, Machine
from vivace.records.measurement import DeviceMemory, Energy, HostMemory, Measurement, Memory, Origin, Spread, Sync
from vivace.records.proof import Gain, Harm, Interval, Payback, Proof, Rejected, Side
from vivace.records.trial import Trial

__all__ = ["EVIL", "in_terminal", "made_finding", "made_measurement", "made_proof", "made_trial", "spread"]

EVIL = """<script>alert("1")</script><img src=x onerror='alert(2)'> & "quoted" 'so'"""


def in_terminal(view: RenderableType, width: int = 80, colours: bool = False) -> str:
    """As ``vivace.cli`` prints it on a terminal of that width."""
    shown = io.StringIO()
    system = "standard" if colours else None
    console = Console(file=shown, width=width, highlight=False, force_terminal=colours, color_system=system)
    console.print(view, crop=False)
    return shown.getvalue()


def spread(mean: float) -> Spread:
    return Spread(median=mean, p10=0.9 * mean, p90=1.1 * mean, mean=mean)


def made_machine() -> Machine:
    return Machine(
        hostname=EVIL,
        os="Linux",
        python_version="3.11",
        cpu=Cpu(model=EVIL, architecture="x86_64", usable_cores=4.0, has_bf16=False),
        memory_gib=16.0,
        gpus=(Gpu(index=0, name=EVIL, memory_gib=80.0, power_limit_w=700.0),),
        torch_version="2.11.0",
        missing=(EVIL,),
    )


def made_measurement(step_ms: float = 100.0, **more: Any) -> Measurement:
    phases = {"loader": 0.2 * step_ms, "forward": 0.3 * step_ms, "backward": 0.4 * step_ms, "optimizer": 0.1 * step_ms}
    values: dict[str, Any] = {
        "status": "complete",
        "steps": 4,
        "warmup_steps": 2,
        "samples_per_s": 64e3 / step_ms,
        "batch_size": 64,
        "step_ms": spread(step_ms),
        "phases_ms": {phase: spread(mean) for phase, mean in phases.items()},
        "series_ms": {"step": (step_ms, step_ms, 1.2 * step_ms, step_ms)},
        "losses": (2.0, 1.5, 1.2, 1.1),
        "memory": Memory(
            device=DeviceMemory(allocated_peak_gib=9.0, reserved_peak_gib=10.0, total_gib=80.0, alloc_retries=0),
            host=HostMemory(rss_gib=1.0, rss_peak_gib=1.5, children_rss_gib=2.0, children=4),
        ),
        "energy": Energy(measured=False, how=f"not measured: {EVIL}"),
        "syncs": (Sync(file=EVIL, line=3, code=EVIL, per_step=1.0),),
        "origin": Origin(command=("python", EVIL), folder=EVIL, script=EVIL, vivace="0", started_at="2026-01-02T03:04"),
        "machine": made_machine(),
        "notes": (EVIL,),
    }
    return Measurement(**{**values, **more})


def made_trial(name: str, practices: tuple[str, ...], step_ms: float | None = 100.0, **more: Any) -> Trial:
    values: dict[str, Any] = {
        "name": name,
        "command": ("python", EVIL),
        "practices": practices,
        "outcome": "ok",
        "seconds": 3.0,
        "measurement": made_measurement(step_ms) if step_ms else None,
    }
    return Trial(**{**values, **more})


def made_finding(**more: Any) -> Finding:
    values: dict[str, Any] = {
        "practice": "workers", "exposed_ms": 20.0, "worth": 1.25, "risk": Risk.EXACT, "where": Place(file=EVIL, line=7),
        "evidence": {"num_workers": 0}, "applies": True, "title": EVIL, "says": EVIL, "by_hand": EVIL,
    }  # fmt: skip
    return Finding(**{**values, **more})


def made_proof(**more: Any) -> Proof:
    nan, inf = float("nan"), float("inf")
    values: dict[str, Any] = {
        "command": ("python", EVIL, "--name", "x" * 3000),
        "speedup": Interval(median=2.5, low=2.4, high=2.6),
        "practices": (
            Gain(
                practice="bf16", risk=Risk.ROUNDING, title=EVIL, by_hand=EVIL,
                alone=Interval(median=2.0, low=1.9, high=2.1), last=Interval(median=1.5, low=1.4, high=1.6),
            ),
            Gain(practice="channels_last", risk=Risk.ROUNDING),
        ),
        "trials": ("trials/a", "trials/b", "trials/c"),
        "harm": Harm(verdict="inside the band", moved=0.01, band=0.05, steps=4, rounds=2, says=EVIL),
        "before": Side(
            samples_per_s=640.0, step_ms=spread(100.0), phases_ms={"loader": 20.0, "backward": 80.0},
            device_memory_gib=20.0, host_memory_gib=0.5, joules_per_sample=0.8, mfu=0.2,
            losses=((2.0, 1.5, nan, 1.1), (2.1, inf, None, 1.0)),
        ),
        "after": Side(
            samples_per_s=1600.0, step_ms=spread(40.0), phases_ms={"loader": 2.0, "backward": 38.0},
            device_memory_gib=10.0, host_memory_gib=0.6, joules_per_sample=0.3, mfu=0.5,
            losses=((2.0, None, 1.3, 1.1), (nan, nan, nan, nan)),
        ),
        "payback": Payback(extra_s=60.0, saved_ms_per_step=60.0, steps=1000),
        "rejected": (
            Rejected(practice="compile", why=EVIL, outcome="timeout"),
            Rejected(practice="tf32", why="slower", ratio=0.98),
        ),
        "proposed": (made_finding(practice="batch", applies=False, why_not=EVIL, risk=Risk.ALGORITHMIC),),
        "findings": (made_finding(), made_finding(practice="bf16")),
        "seconds": 321.0,
        "machine": made_machine(),
        "run_with": f"vivace run --with bf16 -- python {EVIL}",
        "notes": (EVIL,),
    }  # fmt: skip
    return Proof(**{**values, **more})
