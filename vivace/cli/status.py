"""``vivace status JOB``: parse, call ``vivace.launch.status``, print."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vivace.errors import UserError
from vivace.launch.jobs import JobInfo
from vivace.launch.logs import Logs, find_logs, find_runs
from vivace.launch.queue import is_job_id
from vivace.launch.status import Verdict, ask_slurm, energy_j, verdict
from vivace.launch.words import slurm_time
from vivace.report.dlojz_log import read_log

__all__ = ["status"]


def status(
    job: Annotated[str, typer.Argument(help="A job's number, or the name of one sent from here (the newest).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the runs' folders.")] = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how a job stands or ended: exit code, out of memory, out of time, time used of time asked.

    Examples:

        vivace status 1234

        vivace status train --json
    """
    runs = find_runs(job, output)
    job_id = job if is_job_id(job) else runs[-1].job_id if runs else None
    info = ask_slurm(job_id) if job_id else None
    if info is None:
        raise UserError(
            f"Slurm knows no job {job!r}",
            hint="give its number; Slurm forgets ended jobs after minutes where the site keeps no accounts (sacct)",
        )
    logs = _logs(job_id or job, output)
    found = verdict(info, logs.stderr if logs else None, logs.stdout if logs else None)
    table = _table(info, found, logs)
    if json:
        typer.echo(dumps(table, indent=2))
    else:
        _print(table)


def _logs(job: str, output: Path) -> Logs | None:
    try:
        found = find_logs(job, output)
    except UserError:
        return None
    return found[0] if found else None


def _table(info: JobInfo, found: Verdict, logs: Logs | None) -> dict[str, Any]:
    return {
        "job_id": info.job_id,
        "name": info.name,
        "state": found.state,
        "slurm_state": info.state,
        "because": found.because,
        "last_error": found.last_error,
        "exit_code": info.exit_code,
        "signal": info.signal,
        "restarts": info.restarts,
        "ran_s": info.run_s,
        "limit_s": info.limit_s,
        "samples_per_s": _samples_per_s(logs),
        "energy_j": energy_j(info.job_id),
        "stdout": str(logs.stdout) if logs else None,
        "stderr": str(logs.stderr) if logs else None,
    }


def _samples_per_s(logs: Logs | None) -> float | None:
    """What the course's lines tell; other scripts print theirs in their own way."""
    if logs is None or not logs.stdout.exists():
        return None
    return read_log(logs.stdout.read_text(errors="replace")).train_throughput


def _print(table: dict[str, Any]) -> None:
    rows = [("job", f"{table['job_id']} {table['name']}"), ("state", f"{table['state']}: {table['because']}")]
    if table["last_error"]:
        rows.append(("error", table["last_error"]))
    if table["exit_code"] is not None:
        rows.append(("exit code", f"{table['exit_code']}" + (f", signal {table['signal']}" if table["signal"] else "")))
    if table["ran_s"] is not None:
        asked = f" of {slurm_time(table['limit_s'])} asked" if table["limit_s"] else ""
        rows.append(("ran", f"{slurm_time(table['ran_s'])}{asked}"))
    if table["restarts"]:
        rows.append(("restarts", str(table["restarts"])))
    if table["samples_per_s"]:
        rows.append(("throughput", f"{table['samples_per_s']:.1f} samples/s"))
    if table["energy_j"]:
        rows.append(("energy", f"{table['energy_j'] / 3.6e6:.3f} kWh (Slurm's meter)"))
    if table["stdout"]:
        rows.append(("logs", str(table["stdout"])))
    view = Table(box=None, show_header=False, pad_edge=False)
    for label, text in rows:
        view.add_row(Text(label, style="bold"), Text(text))
    Console(highlight=False).print(view)
