"""Sends jobs: makes the run's folder, writes the script, asks Slurm first, calls ``sbatch``, keeps a ``Run`` record.

Writes ``vivace-runs/<name>-NNN/{job.sh,run.json}``, ``plan.json`` where there is a plan and ``job.private.sh`` where
there are secrets; the logs lie beside them.
Called by the CLI and the notebook functions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from vivace.errors import UserError
from vivace.launch.own_variables import environment_for
from vivace.launch.preflight import Preflight, preflight
from vivace.launch.private import private_path, write_private
from vivace.launch.request import JobRequest
from vivace.launch.script import RANKS, Job, Place, parted, prepare, ranks_script, render
from vivace.launch.slurm import ask, call
from vivace.launch.target import Target
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.records.plan import Plan
from vivace.records.privacy import safe_command
from vivace.records.run import Run

__all__ = ["PLAN", "RECORD", "SCRIPT", "product", "send", "submit"]

RECORD = "run.json"
SCRIPT = "job.sh"
PLAN = "plan.json"


def product(request: JobRequest, commands: Sequence[Sequence[str]], gpus: Sequence[int]) -> Iterator[JobRequest]:
    """One request a command and number of GPUs, all others alike; ``request`` gives the rest."""
    for command, count in itertools.product(commands, gpus):
        yield replace(request, command=tuple(command), gpus=count)


def submit(
    request: JobRequest, target: Target, output: Path, check: bool = True, plan: Plan | None = None
) -> tuple[Run, Preflight | None]:
    """Send one job from a new folder under ``output``. Nothing is left behind when Slurm does not take it.

    The plan that it carries out is kept beside it, for ``status`` to compare.
    """
    job = prepare(request, target)
    folder = new_run_folder(output.absolute(), request.name or name_of_command(request.command))
    try:
        place = Place.in_folder(folder, Path.cwd(), request.array is not None)
        sent = send(job, place, folder, check)
    except UserError:
        _remove(folder)
        raise
    if plan is not None:
        plan.save(folder / PLAN)
    return sent


def send(job: Job, place: Place, folder: Path, check: bool = True) -> tuple[Run, Preflight | None]:
    """Write the script to ``place`` and send it; the record goes to ``folder``."""
    script, text = Path(place.script), render(job, place)
    try:
        write_private(place.script, parted(job).private)
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
        if job.request.once:
            script.with_name(RANKS).write_text(ranks_script(), encoding="utf-8")
            script.with_name(RANKS).chmod(0o755)
    except OSError as error:
        raise UserError(f"cannot write {script}: {error.strerror or error}", hint="--output FOLDER") from None
    environment = environment_for(text)
    found = preflight(job, str(script), environment) if check else None
    job_id = _sbatch(str(script), environment)
    run = _record(job, place, folder, job_id)
    run.save(folder / RECORD)
    return run, found


def _sbatch(script: str, environment: Mapping[str, str]) -> str:
    text = call("sbatch", "--parsable", script, environment=environment).out.strip().split("\n")[-1]
    job_id = text.split(";")[0]  # "123;cluster" in a federation
    if not re.fullmatch(r"\d+", job_id):
        raise UserError(f"sbatch did not give a job number but {text!r}", hint="see squeue --me")
    _check_it_is_known(job_id)
    return job_id


def _check_it_is_known(job_id: str) -> None:
    if ask("scontrol", "--oneliner", "show", "job", job_id).code != 0:
        raise UserError(f"sbatch gave job {job_id}, but Slurm does not know it", hint="see squeue --me")


def _record(job: Job, place: Place, folder: Path, job_id: str) -> Run:
    return Run(
        command=safe_command(job.request.command),
        practices=job.request.practices,
        launcher="slurm",
        name=job.request.name,
        job_id=job_id,
        state="queued",
        submitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        folder=str(folder),
        cluster=job.target.name,
        gpus=job.shape.gpus,
        nodes=job.shape.nodes,
        time_limit_s=job.seconds,
        pieces=job.pieces,
        qos=job.qos,
        array=job.request.array,
        script=place.script,
        stdout=place.stdout,
        stderr=place.stderr,
    )


def _remove(folder: Path) -> None:
    (folder / SCRIPT).unlink(missing_ok=True)
    private_path(str(folder / SCRIPT)).unlink(missing_ok=True)
    (folder / RANKS).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
