"""The tables of ``vivace hardware --cluster``: partitions, QoS and storage of a site or of one cluster. Prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from vivace.hardware.specs import ClusterSpec, QosSpec, StorageSpec
from vivace.report.fitting import FittingTable

__all__ = ["print_clusters"]


def print_clusters(specs: Sequence[ClusterSpec], console: Console) -> None:
    """``specs`` have one site, or are one cluster without a site."""
    site = specs[0].site_spec
    console.print(f"[bold]{site.name if site else specs[0].name}[/]")
    tables = [_partitions(specs), _qos(specs), _storage(specs[0].storage)]
    for table in (table for table in tables if table.row_count):
        console.print()
        console.print(table)
    notes = [*(site.notes if site else ()), *(specs[0].notes if len(specs) == 1 else ())]
    if notes:
        console.print()
    for note in notes:
        console.print(f"note: {note}", style="dim", markup=False, soft_wrap=True)


def _partitions(specs: Sequence[ClusterSpec]) -> Table:
    table = _table("--cluster", "partition", "nodes", "GPUs", "GPU", "cores", "GB/core", "GB/GPU", "account")
    for spec in specs:
        memory = [_figure(spec.usable_memory_gb_per_core, 2), _figure(spec.usable_memory_gb_per_gpu, 1)]
        shape = [_figure(spec.nodes), _figure(spec.gpus_per_node), spec.gpu, _figure(spec.cores_per_gpu)]
        account = f"…@{spec.account_suffix}" if spec.account_suffix else "–"
        table.add_row(spec.key, spec.partition or "–", *shape, *memory, account)
    table.caption = "GPUs per node, cores per GPU; usable memory, which comes with the cores; –: unknown"
    return table


def _qos(specs: Sequence[ClusterSpec]) -> Table:
    table = _table("QoS", "hours", "per job", "per user", "per project", "in all", "jobs", "for")
    by_name: dict[str, tuple[QosSpec, list[str]]] = {}
    for spec in specs:
        for qos in spec.qos_specs:
            by_name.setdefault(qos.name, (qos, []))[1].append(spec.gpu.partition("-")[0])
    for qos, gpus in by_name.values():
        limits = [qos.max_gpus_per_job, qos.max_gpus_per_user, qos.max_gpus_per_project, qos.max_gpus_in_total]
        name = f"{qos.name} (default)" if qos.default else qos.name
        figures = map(_figure, [qos.max_hours, *limits, qos.max_jobs_per_user])
        table.add_row(name, *figures, " ".join(dict.fromkeys(gpus)))
    table.caption = "hours and GPUs at most; jobs: of a user at the same time"
    return table


def _storage(spaces: Iterable[StorageSpec]) -> Table:
    table = _table("storage", "GB", "files", "of a", "backup", "read", "write", "for")
    for space in spaces:
        backup = "–" if space.backed_up is None else "yes" if space.backed_up else "no"
        sizes = [_figure(space.quota_gb), _figure(space.quota_inodes), space.quota_scope or "–"]
        speeds = [_figure(space.read_gbytes_per_s), _figure(space.write_gbytes_per_s)]
        table.add_row(f"${space.variable}", *sizes, backup, *speeds, space.advice)
    table.caption = "quotas per user or project; read and write: GB/s of the whole file system"
    return table


def _table(*columns: str) -> Table:
    table = FittingTable(box=None, pad_edge=False, caption_justify="left", header_style="bold")
    for column in columns:
        words = column in ("--cluster", "partition", "GPU", "account", "QoS", "storage", "of a", "backup", "for")
        table.add_column(column, justify="left" if words else "right")
    return table


def _figure(value: float | None, decimals: int = 0) -> str:
    """``4.88`` and ``117``: decimals where there are any."""
    if value is None:
        return "–"
    return f"{value:,.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{value:,.0f}"
