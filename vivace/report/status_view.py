"""The answer of ``vivace status`` as a person reads it. Knows the table that ``cli.status`` made, nothing else.

Times are written as Slurm writes them, by the function that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vivace.report.figures import counted
from vivace.report.fitting import FittingTable

__all__ = ["array_view", "status_rows", "status_view"]

Rows = list[tuple[str, str]]
Clock = Callable[[float], str]


def status_view(table: dict[str, Any], clock: Clock) -> Table:
    view = Table(box=None, show_header=False, pad_edge=False)
    for label, text in status_rows(table, clock):
        view.add_row(Text(label, style="bold"), Text(text))
    return view


def status_rows(table: dict[str, Any], clock: Clock) -> Rows:
    return [*_end(table, clock), *_figures(table), *_plan(table), *_logs(table)]


def array_view(table: dict[str, Any], clock: Clock) -> Group:
    """An array: the whole in two lines, then a row a task."""
    head = Table(box=None, show_header=False, pad_edge=False)
    head.add_row(Text("array", style="bold"), Text(f"{table['job_id']} {table['name']}"))
    head.add_row(Text("state", style="bold"), Text(f"{table['state']}: {table['because']}"))
    view = FittingTable(box=None, pad_edge=False, header_style="bold")
    for column in ("task", "state", "exit code", "ran", "because"):
        view.add_column(column, overflow="fold")
    for task in table["tasks"]:
        view.add_row(
            task["job_id"],
            task["state"],
            "" if task["exit_code"] is None else str(task["exit_code"]),
            "" if task["ran_s"] is None else clock(task["ran_s"]),
            Text(task["last_error"] or task["because"]),
        )
    return Group(head, Text(""), view)


def _end(table: dict[str, Any], clock: Clock) -> Rows:
    rows = [("job", f"{table['job_id']} {table['name']}"), ("state", f"{table['state']}: {table['because']}")]
    if table["last_error"]:
        rows.append(("error", table["last_error"]))
    if table["exit_code"] is not None:
        rows.append(("exit code", f"{table['exit_code']}" + (f", signal {table['signal']}" if table["signal"] else "")))
    if table["practices"]:
        rows.append(("with", ", ".join(table["practices"])))
    if table["ran_s"] is not None:
        asked = f" of {clock(table['limit_s'])} asked" if table["limit_s"] else ""
        rows.append(("ran", f"{clock(table['ran_s'])}{asked}{_other_starts(table, clock)}"))
    elif table["restarts"]:
        rows.append(("restarts", str(table["restarts"])))
    if table["crashes"]:
        rows.append(("crashes", f"{table['crashes']} (--retry-crash)"))
    if table["checkpoint"]:
        when = f"saved {table['checkpoint_saved_at']}" if table["checkpoint_saved_at"] else "no longer there"
        rows.append(("checkpoint", f"{table['checkpoint']}, {when}"))
    return rows


def _other_starts(table: dict[str, Any], clock: Clock) -> str:
    if not table["restarts"]:
        return ""
    every = table["all_starts_ran_s"]
    total = f"all together {clock(every)}" if every is not None else "earlier starts are unknown without accounts"
    return f", since restart {table['restarts']}; {total}"


def _figures(table: dict[str, Any]) -> Rows:
    if table["state"] == "queued":
        return []
    rows = [("throughput", _throughput(table))]
    if table["mfu_pct"] is not None:
        rows.append(("MFU", f"{table['mfu_pct']:.1f} %"))
    rows.append(("energy", _energy(table)))
    if proof := table["proof"]:
        names = ", ".join(proof["practices"]) or "no practice"
        over = f", {counted(proof['pairs'], 'pair')}" if proof["pairs"] else ""
        ratio = f"{proof['speedup']:.2f}× ({proof['low']:.2f} to {proof['high']:.2f}{over})"
        rows.append(("proof", f"{ratio} with {names}: {proof['file']}"))
    return rows


def _throughput(table: dict[str, Any]) -> str:
    if table["samples_per_s"] is None and table["step_ms"] is None:
        return "not measured: the job has no `vivace measure`, and its log has no lines that vivace can read"
    parts = []
    if table["samples_per_s"] is not None:
        parts.append(f"{table['samples_per_s']:,.1f} samples/s")
    if table["tokens_per_s"] is not None:
        parts.append(f"{table['tokens_per_s']:,.0f} tokens/s")
    if table["step_ms"] is not None:
        parts.append(f"{table['step_ms']:.2f} ms per step")
    return f"{', '.join(parts)} ({table['figures_from']})"


def _energy(table: dict[str, Any]) -> str:
    parts = []
    if table["joules_per_sample"] is not None:
        parts.append(f"{table['joules_per_sample']:.3g} J per sample ({table['energy_how']})")
    if table["energy_j"] is not None:
        start = ", since its last start" if table["restarts"] else ""
        parts.append(f"{table['energy_j'] / 3.6e6:.3f} kWh (Slurm's meter{start})")
    if parts:
        return "; ".join(parts)
    return f"{table['energy_how'] or 'not measured'}; Slurm's accounting has none"


def _plan(table: dict[str, Any]) -> Rows:
    if table["not_compared"]:
        return [("plan", table["not_compared"])]
    return [(row["what"], row["sentence"]) for row in table["planned"]]


def _logs(table: dict[str, Any]) -> Rows:
    if not table["stdout"]:
        return []
    if table["logs_gone"]:
        return [
            (
                "logs",
                f"{Path(table['stdout']).parent} no longer exists: output is lost, and the job cannot start without it",
            )
        ]
    return [("logs", table["stdout"])]
