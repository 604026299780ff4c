"""``vivace hardware``: this machine, and the catalogue of GPUs and clusters, for a person or as JSON.

Parses, calls ``vivace.hardware``, prints. ``vivace.cli.app`` registers it.
"""

from __future__ import annotations

import json as json_format
from typing import Annotated

import typer
from rich.table import Table

from vivace.cli.console import make_console
from vivace.cli.hardware_cluster import print_clusters
from vivace.cli.hardware_fit import occupancy, tiles
from vivace.cli.hardware_gpu import gpu_as_json, print_gpu
from vivace.hardware.catalogue import Catalogue, clusters_of, load_catalogue
from vivace.hardware.machine import this_machine
from vivace.hardware.specs import achievable_tflops, as_table, peak_tflops
from vivace.plan.machines.gpu_names import known_gpu
from vivace.records.machine import Cpu, Gpu, Machine
from vivace.report.fitting import FittingTable

__all__ = ["hardware_app"]

hardware_app = typer.Typer(invoke_without_command=True)
hardware_app.command("occupancy")(occupancy)
hardware_app.command("tiles")(tiles)


@hardware_app.callback()
def hardware(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    gpus: Annotated[bool, typer.Option("--gpus", help="List the GPUs in the catalogue.")] = False,
    gpu: Annotated[
        str | None, typer.Option(help="Show one GPU: units, dense and sparse peaks, memory, formats (H100).")
    ] = None,
    clusters: Annotated[bool, typer.Option("--clusters", help="List the clusters in the catalogue.")] = False,
    cluster: Annotated[
        str | None, typer.Option(help="Show a site's partitions, QoS and storage (jean-zay), or one cluster's.")
    ] = None,
) -> None:
    """Show this machine: cores, memory, GPUs, versions, and what is missing.

    Examples:

        vivace hardware                      this machine, in ten seconds

        vivace hardware --json               the same as a record, for scripts

        vivace hardware --clusters           names for `vivace plan --cluster`

        vivace hardware --cluster jean-zay   its partitions, memory per core, QoS and storage

        vivace hardware --gpu H100           one GPU: cores, dense and sparse peaks, memory hierarchy, formats

        vivace hardware --gpus --json        peaks, bandwidths and their sources

        vivace hardware occupancy --gpu A100 --threads 256 --registers 64      resident warps of a kernel

        vivace hardware tiles 2304 1664 4096 --gpu A100      tiles and waves of a matrix product

    Add your own GPUs and clusters with TOML files in ~/.config/vivace/ or $VIVACE_CATALOGUE.
    """
    if context.invoked_subcommand is not None:
        return
    if cluster is not None:
        specs = clusters_of(cluster)
        if json:
            _print_json(json_format.dumps([as_table(spec) for spec in specs], indent=2, ensure_ascii=False))
        else:
            print_clusters(specs, make_console(highlight=False))
        return
    if gpu is not None:
        spec = known_gpu(gpu)
        if json:
            _print_json(json_format.dumps(gpu_as_json(spec), indent=2, ensure_ascii=False))
        else:
            print_gpu(spec, make_console(highlight=False))
        return
    if not (gpus or clusters):
        machine = this_machine()
        if json:
            _print_json(machine.to_json())
        else:
            _print_machine(machine)
        return
    catalogue = load_catalogue()
    if json:
        _print_json(_catalogue_json(catalogue, gpus, clusters))
        return
    if gpus:
        make_console().print(_gpu_table(catalogue))
    if clusters:
        make_console().print(_cluster_table(catalogue))


def _print_json(text: str) -> None:
    typer.echo(text.rstrip("\n"))


def _catalogue_json(catalogue: Catalogue, gpus: bool, clusters: bool) -> str:
    content = {}
    if gpus:
        content["gpus"] = {key: as_table(spec) for key, spec in catalogue.gpus.items()}
    if clusters:
        content["clusters"] = {key: as_table(spec) for key, spec in catalogue.clusters.items()}
    return json_format.dumps(content, indent=2, ensure_ascii=False)


def _print_machine(machine: Machine) -> None:
    table = Table(title=f"{machine.hostname}", title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in _machine_rows(machine):
        table.add_row(label, text)
    console = make_console(highlight=False)
    console.print(table)
    for sentence in machine.missing:
        console.print(f"not found: {sentence}", style="yellow", markup=False, soft_wrap=True)


def _machine_rows(machine: Machine) -> list[tuple[str, str]]:
    limit = machine.memory_limit_gib
    rows = [
        ("system", f"{machine.os}, Python {machine.python_version}"),
        ("CPU", f"{machine.cpu.model or machine.cpu.architecture}{_abilities(machine.cpu)}"),
        ("cores", _cores(machine.cpu)),
        ("memory", f"{machine.memory_gib:.1f} GiB" + (f", limited to {limit:.1f} GiB" if limit else "")),
        ("torch", _versions(machine)),
    ]
    if machine.driver_version:
        rows.append(("driver", machine.driver_version))
    rows.extend((f"GPU {gpu.index}", _gpu(gpu)) for gpu in machine.gpus)
    return rows if machine.gpus else [*rows, ("GPU", "none")]


def _abilities(cpu: Cpu) -> str:
    abilities = {"AVX2": cpu.has_avx2, "AVX-512": cpu.has_avx512, "AMX": cpu.has_amx, "bf16": cpu.has_bf16}
    known = ", ".join(name for name, there in abilities.items() if there)
    return f" ({known})" if known else ""


def _cores(cpu: Cpu) -> str:
    whole = f"{cpu.logical_cores or '?'} logical, {cpu.physical_cores or '?'} physical"
    return f"{cpu.usable_cores:g} usable of {whole}"


def _versions(machine: Machine) -> str:
    if machine.torch_version is None:
        return "not importable"
    parts = {"CUDA": machine.cuda_version, "cuDNN": machine.cudnn_version, "NCCL": machine.nccl_version}
    return ", ".join([machine.torch_version, *(f"{name} {version}" for name, version in parts.items() if version)])


def _gpu(gpu: Gpu) -> str:
    facts = [
        gpu.name,
        f"{gpu.memory_gib:.1f} GiB",
        f"{gpu.sm_count} SM" if gpu.sm_count else "",
        _peak(gpu),
        f"{gpu.memory_bandwidth_gbytes_per_s:g} GB/s" if gpu.memory_bandwidth_gbytes_per_s else "",
        f"{gpu.power_limit_w:g} W" if gpu.power_limit_w else "",
        f"{gpu.nvlink_active_links} NVLinks" if gpu.nvlink_active_links else "",
        f"PCIe {gpu.pcie_generation} x{gpu.pcie_width}" if gpu.pcie_generation and gpu.pcie_width else "",
    ]
    return ", ".join(fact for fact in facts if fact)


def _peak(gpu: Gpu) -> str:
    if gpu.catalogue_key is None:
        return "not in the catalogue"
    peak = gpu.dense_peak_tflops.get("fp16")
    return f"{peak:g} TFLOP/s 16-bit" if peak else "peak unknown"


def _gpu_table(catalogue: Catalogue) -> Table:
    table = _table("GPU", "GB", "GB/s", "SM", "fp32", "TF32", "16-bit", "best", "fp8", "W")
    for key, spec in catalogue.gpus.items():
        fp32, tf32, fp16, fp8 = (peak_tflops(spec, dtype) for dtype in ("fp32", "tf32", "fp16", "fp8"))
        peaks = [fp32, tf32, fp16, achievable_tflops(spec, "bf16"), fp8]
        memory = [spec.memory_gb, spec.memory_bandwidth_gbytes_per_s]
        table.add_row(key, *map(_number, [*memory, spec.sm_count, *peaks, spec.tdp_w]))
    table.caption = "dense TFLOP/s; best: the fastest bf16 matrix product measured; –: unknown"
    return table


def _cluster_table(catalogue: Catalogue) -> Table:
    table = _table("cluster", "nodes", "GPUs", "GPU", "cores", "in node", "between")
    for key, spec in catalogue.clusters.items():
        links = [spec.intra_node_gbytes_per_s_per_gpu, spec.inter_node_gbits_per_s_per_gpu]
        row = [_number(spec.nodes), _number(spec.gpus_per_node), spec.gpu, _number(spec.cores_per_gpu)]
        table.add_row(key, *row, *map(_number, links))
    table.caption = "GPUs per node, cores per GPU; in node: GB/s per GPU; between: Gb/s per GPU; –: unknown"
    return table


def _table(*columns: str) -> Table:
    table = FittingTable(box=None, pad_edge=False, caption_justify="left", header_style="bold")
    for column in columns:
        text = column in ("GPU", "cluster")
        table.add_column(column, justify="left" if text else "right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
