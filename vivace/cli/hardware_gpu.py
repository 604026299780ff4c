"""The page of ``vivace hardware --gpu``: units, peaks, memory and formats of one GPU, with their sources. Prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from vivace.hardware.generations import Generation, generation_of
from vivace.hardware.specs import DTYPES, GpuSpec, as_table
from vivace.report.fitting import FittingTable

__all__ = ["gpu_as_json", "print_gpu"]


def gpu_as_json(spec: GpuSpec) -> dict[str, Any]:
    """The catalogue's entry, with what its compute capability adds under ``generation``."""
    generation = generation_of(spec)
    if generation is None:
        return as_table(spec)
    return {**as_table(spec), "generation": {key: value for key, value in asdict(generation).items() if value}}


def print_gpu(spec: GpuSpec, console: Console) -> None:
    generation = generation_of(spec)
    capability = f"compute capability {spec.compute_capability}" if spec.compute_capability else ""
    console.print(f"[bold]{spec.name}[/]  {', '.join(part for part in (spec.architecture, capability) if part)}")
    for table in (_units(spec, generation), _peaks(spec), _memory(spec, generation)):
        if table.row_count:
            console.print()
            console.print(table)
    console.print()
    for sentence in [*spec.notes, *(f"source: {source}" for source in spec.sources)]:
        console.print(sentence, style="dim", markup=False, soft_wrap=True)
    for key, source in spec.value_sources.items():
        console.print(f"source of {key}: {source}", style="dim", markup=False, soft_wrap=True)


def _units(spec: GpuSpec, generation: Generation | None) -> Table:
    table = _table("units", "on the GPU", "per SM", "formats")
    if spec.sm_count:
        table.add_row("SM", f"{spec.sm_count:,}", "", "")
    if generation is None:
        return table
    ordinal = f" (generation {generation.tensor_core_generation})" if generation.tensor_core_generation else ""
    for name, per_sm, formats in (
        ("CUDA cores", generation.cuda_cores_per_sm, generation.cuda_core_formats),
        (f"tensor cores{ordinal}", generation.tensor_cores_per_sm, generation.tensor_core_formats),
    ):
        if per_sm:
            total = f"{spec.sm_count * per_sm:,}" if spec.sm_count else "–"
            table.add_row(name, total, f"{per_sm}", " ".join(formats))
    return table


def _peaks(spec: GpuSpec) -> Table:
    table = _table("format", "dense", "sparse", "best measured")
    for dtype in DTYPES:
        figures = [peaks.get(dtype) for peaks in (spec.dense_peak_tflops, spec.sparse_peak_tflops)]
        if any(figures):
            best = spec.achievable_tflops.get(dtype)
            table.add_row(dtype, *("–" if figure is None else f"{figure:g}" for figure in (*figures, best)))
    table.caption = (
        "TFLOP/s (TOP/s for int); fp64 and fp32 on CUDA cores, the others on tensor cores; –: none or unknown"
    )
    return table


def _memory(spec: GpuSpec, generation: Generation | None) -> Table:
    table = _table("memory", "size", "GB/s")
    if generation is not None:
        table.add_row("registers", f"{generation.register_kib_per_sm:g} KiB per SM", "–")
        table.add_row("shared memory", f"up to {generation.shared_kib_per_sm} KiB per SM", "–")
        if generation.l1_shared_kib:
            table.add_row("L1 and shared", f"{generation.l1_shared_kib} KiB per SM", "–")
    if spec.l2_mb:
        table.add_row("L2", f"{spec.l2_mb:g} MB", "–")
    if spec.memory_gb:
        bandwidth = spec.memory_bandwidth_gbytes_per_s
        table.add_row(spec.memory_type or "memory", f"{spec.memory_gb:g} GB", f"{bandwidth:g}" if bandwidth else "–")
    return table


def _table(*columns: str) -> Table:
    table = FittingTable(box=None, pad_edge=False, caption_justify="left", header_style="bold")
    for column in columns:
        words = column in ("units", "format", "memory", "formats", "size")
        table.add_column(column, justify="left" if words else "right")
    return table
