"""``vivace status JOB``: parse, ask ``vivace.launch``, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from vivace.cli.console import make_console
from vivace.cli.runs import DEFAULT_RUNS, Output, places
from vivace.errors import UserError
from vivace.launch.achieved import (
    Achieved,
    newest_measurement,
    newest_proof,
    newest_trained,
    of_measurement,
    of_trained,
    records_folder,
    unreadable_records,
)
from vivace.launch.compared import compare, why_not_alike
from vivace.launch.jobs import JobInfo
from vivace.launch.logs import Logs, find_logs, find_runs, unreadable_runs
from vivace.launch.queue import is_job_id, my_jobs
from vivace.launch.saved import last_checkpoint, training_is_done
from vivace.launch.status import Verdict, ask_tasks, crashes, energy_j, of_array, verdict, whole_run_s
from vivace.launch.submit import PLAN
from vivace.launch.words import slurm_time
from vivace.records.plan import Plan
from vivace.records.run import Run
from vivace.report.dlojz_log import read_log
from vivace.report.status_view import array_view, status_view

__all__ = ["job_report", "status"]

_MOST_NOTES = 3


def status(
    job: Annotated[str, typer.Argument(help="Number of a job, or name of one submitted from here (the newest).")],
    output: Output = DEFAULT_RUNS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the state of a job or how it ended, its throughput and energy, and how it compares with its plan.

    Throughput and energy come from a `vivace measure` in the job, or from the lines that the course's script prints.

    Examples:

        vivace status 1234

        vivace status train --json
    """
    runs = find_runs(job, *places(output))
    run = runs[-1] if runs else None
    job_id = job if is_job_id(job) else run.job_id if run else _in_queue(job)
    tasks = ask_tasks(job_id) if job_id else []
    unread = [note for place in places(output) for note in unreadable_runs(place)]
    _note(unread if run is None else unreadable_records(Path(run.folder)))
    if not tasks and run is None:
        raise UserError(
            f"Slurm knows no job {job!r}",
            hint="use its number; Slurm forgets ended jobs within minutes if the site keeps no accounts (sacct)",
        )
    is_array = bool(tasks) and "_" in tasks[0].job_id and "_" not in (job_id or "")
    known = tasks[0] if tasks else None
    table = _array_table(tasks, run, output) if is_array else _table(known, run, _logs(job_id or job, output))
    if json:
        typer.echo(dumps(table, indent=2))
    else:
        view = array_view if is_array else status_view
        make_console(highlight=False, soft_wrap=True).print(view(table, slurm_time))


def job_report(job: str, output: Path) -> tuple[str, Path] | None:
    """The page of a job that was sent from here, and the folder that it belongs into; None: no such job."""
    from vivace.launch.pieces import pieces_of
    from vivace.report.job_page import job_page

    runs = [run for run in find_runs(job, *places(output)) if run.launcher == "slurm"]
    if not runs:
        return None
    run = runs[-1]
    job_id = job if is_job_id(job) else run.job_id or ""
    tasks = ask_tasks(job_id)
    if len(tasks) > 1:
        raise UserError(f"{job} is an array", hint=f"vivace report {tasks[0].job_id}: a page for each task")
    known = tasks[0] if tasks else None
    table = _table(known, run, _logs(job_id, output))
    one = run.model_copy(update={"job_id": job_id})
    return job_page(table, pieces_of(one, known), run.submitted_at, slurm_time), Path(run.folder)


def _note(reasons: Sequence[str]) -> None:
    console = make_console(stderr=True, highlight=False, soft_wrap=True)
    for reason in reasons[:_MOST_NOTES]:
        console.print(f"note: {reason}", style="yellow", markup=False)


def _array_table(tasks: Sequence[JobInfo], run: Run | None, output: Path) -> dict[str, Any]:
    waits = {task.job_id for task in tasks if task.job_id.endswith("]")}  # several tasks, without a log yet
    tables = [_table(task, run, None if task.job_id in waits else _logs(task.job_id, output)) for task in tasks]
    whole = of_array([table["state"] for table in tables])
    return {
        "job_id": tasks[0].job_id.partition("_")[0],
        "name": tasks[0].name,
        "state": whole.state,
        "because": whole.because,
        "tasks": tables,
    }


def _in_queue(name: str) -> str | None:
    jobs = my_jobs(name)
    return jobs[-1].job_id if jobs else None


def _logs(job: str, output: Path) -> Logs | None:
    try:
        found = find_logs(job, *places(output))
    except UserError:
        return None
    return found[0] if found else None


def _table(known: JobInfo | None, run: Run | None, logs: Logs | None) -> dict[str, Any]:
    info = known or _forgotten(run)
    found = verdict(info, logs.stderr if logs else None, logs.stdout if logs else None)
    done = run is not None and training_is_done(Path(run.folder), info.job_id)
    if done and found.state in ("failed", "timeout", "out-of-memory"):
        found = replace(found, because=f"its training was done; {found.because}")
    if known is None:
        found = replace(found, because=f"{found.because} (Slurm no longer knows the job)")
    whole_s = whole_run_s(info)
    achieved = _achieved(info, run, logs)
    joules = energy_j(info.job_id)
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
        "crashes": len(crashes(Path(run.folder), info.job_id)) if run else 0,
        "training_done": done,
        **_checkpoint(info, run),
        "ran_s": info.run_s,
        "all_starts_ran_s": whole_s,
        "limit_s": info.limit_s,
        "practices": list(run.practices) if run else [],
        **_figures(achieved),
        "energy_j": joules,
        "proof": _proof(info, run),
        **_planned(run, achieved, *_whole(found, info, whole_s, joules)),
        "stdout": str(logs.stdout) if logs else None,
        "stderr": str(logs.stderr) if logs else None,
        "logs_gone": logs is not None and not logs.stdout.parent.is_dir(),
    }


def _forgotten(run: Run | None) -> JobInfo:
    assert run is not None
    return JobInfo(job_id=run.job_id or "", name=run.name or "", state="UNKNOWN", limit_s=run.time_limit_s)


def _checkpoint(info: JobInfo, run: Run | None) -> dict[str, str | None]:
    saved = last_checkpoint(Path(run.folder), info.job_id) if run else None
    return {
        "checkpoint": saved.path if saved else None,
        "checkpoint_saved_at": saved.saved_at if saved else None,
    }


def _figures(achieved: Achieved | None) -> dict[str, Any]:
    figures = asdict(achieved or Achieved(source=""))
    figures["figures_from"] = figures.pop("source") or None
    return figures


def _achieved(info: JobInfo, run: Run | None, logs: Logs | None) -> Achieved | None:
    """vivace's own record; else the course's lines in the log; else None: other scripts print as they like."""
    if run is not None and (measured := newest_measurement(records_folder(run.folder, info.job_id))):
        return of_measurement(measured[0], str(measured[1]))
    if run is not None and (trained := newest_trained(records_folder(run.folder, info.job_id))):
        return of_trained(trained[0], str(trained[1]))
    if logs is None or not logs.stdout.is_file():
        return None
    log = read_log(logs.stdout.read_text(errors="replace"))
    if log.train_throughput is None or log.iteration_s is None:
        return None
    return Achieved(
        source=str(logs.stdout),
        step_ms=1000 * log.iteration_s,
        samples_per_s=log.train_throughput,
        global_batch=log.global_batch,
    )


def _proof(info: JobInfo, run: Run | None) -> dict[str, Any] | None:
    found = newest_proof(records_folder(run.folder, info.job_id)) if run else None
    if found is None:
        return None
    proof, path = found
    return {
        "speedup": proof.speedup.median,
        "low": proof.speedup.low,
        "high": proof.speedup.high,
        "pairs": proof.pairs,
        "practices": [gain.practice for gain in proof.practices],
        "file": str(path),
    }


def _whole(found: Verdict, info: JobInfo, whole_s: int | None, joules: float | None) -> tuple[int | None, float | None]:
    """Time and energy that can stand beside a plan's: of a job that ended well, with all its starts."""
    if found.state != "completed":
        return None, None
    return whole_s, None if info.restarts else joules


def _planned(run: Run | None, achieved: Achieved | None, whole_s: int | None, joules: float | None) -> dict[str, Any]:
    file = Path(run.folder) / PLAN if run else None
    if run is None or file is None or not file.is_file():
        return {"planned": [], "not_compared": None}
    plan = Plan.load(file)
    if why := why_not_alike(plan, run.gpus, achieved):
        return {"planned": [], "not_compared": why}
    rows = compare(plan, achieved, whole_s, joules)
    return {"planned": [{**asdict(row), "sentence": row.sentence} for row in rows], "not_compared": None}
