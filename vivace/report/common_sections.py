"""Sections that several records share: findings, the machine, how it was measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from markupsafe import Markup

from vivace.records.finding import Finding
from vivace.records.machine import Gpu, Machine
from vivace.records.measurement import Origin
from vivace.report.charts.bars import Piece, bar
from vivace.report.figures import bytes_gib, milliseconds, plain
from vivace.report.rendering import render
from vivace.report.run_folder import RunFolder

__all__ = ["command_line", "findings_section", "machine_section", "method_section"]


def command_line(words: Sequence[str]) -> str:
    """As it would be typed in a shell."""
    return shlex.join(words)


def findings_section(
    title: str, findings: Sequence[Finding], anchor: str, step_ms: float | None = None
) -> Markup | None:
    """With ``step_ms``, a bar shows how much of a step each one is about."""
    if not findings:
        return None
    rows = [(finding, _exposed(finding.exposed_ms, step_ms)) for finding in findings]
    return render("findings", title=title, rows=rows, anchor=anchor)


def _exposed(exposed_ms: float, step_ms: float | None) -> Markup | None:
    if not step_ms:
        return None
    label = f"{milliseconds(exposed_ms)} of {milliseconds(step_ms)} per step"
    return bar([Piece("exposed", min(exposed_ms, step_ms), label)], step_ms)


def machine_section(machine: Machine | None, origin: Origin | None) -> Markup | None:
    if machine is None:
        return None
    rows = [(name, text) for name, text in _machine_rows(machine, origin) if text]
    return render("machine", rows=rows, missing=machine.missing)


def _machine_rows(machine: Machine, origin: Origin | None) -> list[tuple[str, str]]:
    cpu = machine.cpu
    cores = f"{plain(cpu.usable_cores, 3)} usable cores" + (f" of {cpu.logical_cores}" if cpu.logical_cores else "")
    units = {True: ", bf16 units", False: ", no bf16 units", None: ""}[cpu.has_bf16]
    limit = f" (limited to {bytes_gib(machine.memory_limit_gib)})" if machine.memory_limit_gib else ""
    rows = [
        ("host", f"{machine.hostname}, {machine.os}"),
        ("processor", f"{cpu.model or cpu.architecture}: {cores}{units}"),
        ("memory", f"{bytes_gib(machine.memory_gib)}{limit}"),
        *((f"GPU {gpu.index}", _gpu(gpu)) for gpu in machine.gpus),
        ("driver", machine.driver_version or ""),
        ("Python", machine.python_version),
        ("torch", machine.torch_version or ""),
        ("CUDA", machine.cuda_version or ""),
        ("cuDNN", machine.cudnn_version or ""),
        ("NCCL", machine.nccl_version or ""),
    ]
    if origin is not None:
        rows += [
            ("vivace", origin.vivace),
            ("script", origin.script or ""),
            ("code", f"sha256 {origin.code_sha256[:16]}…" if origin.code_sha256 else ""),
            ("seed", str(origin.seed) if origin.seed is not None else ""),
        ]
    return rows


def _gpu(gpu: Gpu) -> str:
    limit = f", {gpu.power_limit_w:.0f} W limit" if gpu.power_limit_w else ""
    return f"{gpu.name}, {bytes_gib(gpu.memory_gib)}{limit}"


def method_section(run: RunFolder) -> Markup:
    proof = run.proof
    return render(
        "method", proof=proof, trials=run.trials, unreadable=run.unreadable, notes=proof.notes if proof else ()
    )
