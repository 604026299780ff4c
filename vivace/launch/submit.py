"""Sends jobs: makes the run's folder, writes the script, asks Slurm first, calls ``sbatch``, keeps a ``Run`` record.

Writes ``vivace-runs/<name>-NNN/{job.sh,run.json}``, ``plan.json`` where there is a plan and ``job.private.sh`` where
there are secrets; the logs lie beside them.
Called by the CLI and the notebook functions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from vivace.errors import UserError
from vivace.launch.known_options import check_options
from vivace.launch.own_variables import environment_for
from vivace.launch.preflight import Preflight, preflight
from vivace.launch.private import private_path, write_private
from vivace.launch.request import JobRequest
from vivace.launch.script import RANKS, Job, Place, parted, prepare, ranks_script, render
from vivace.launch.slurm import SlurmSilent, ask, call
from vivace.launch.target import Target
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.records.plan import Plan
from vivace.records.privacy import safe_command
from vivace.records.run import Run

__all__ = ["PLAN", "RECORD", "SCRIPT", "Sent", "product", "send", "submit"]

RECORD = "run.json"
SCRIPT = "job.sh"
PLAN = "plan.json"


def product(request: JobRequest, commands: Sequence[Sequence[str]], gpus: Sequence[int]) -> Iterator[JobRequest]:
    """One request a command and number of GPUs, all others alike; ``request`` gives the rest."""
    for command, count in itertools.product(commands, gpus):
        yield replace(request, command=tuple(command), gpus=count)


class MaybeSent(UserError):
    """``sbatch`` gave no number. The job may be in the queue all the same, so its folder is kept."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(f"{message}; the job may be in the queue, so {folder} is kept", hint="see squeue --me")


@dataclass(frozen=True)
class Sent:
    """A job in the queue. ``warnings`` says what went wrong after Slurm took it."""

    run: Run
    preflight: Preflight | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Ready:
    """A job whose script is written, and which Slurm would take."""

    job: Job
    place: Place
    folder: Path
    environment: Mapping[str, str]
    preflight: Preflight | None


def submit(
    requests: Sequence[JobRequest],
    target: Target,
    output: Path,
    check: bool = True,
    plan: Plan | None = None,
    on_sent: Callable[[Sent], None] = lambda _sent: None,
) -> list[Sent]:
    """Send jobs, each from a new folder under ``output``. All are checked before the first is sent.

    ``on_sent`` is called for each as soon as Slurm has taken it: a later one may be refused. Of jobs that were not sent
    nothing is left behind. The plan that they carry out is kept beside them, for ``status`` to compare.
    """
    if check:
        for command in dict.fromkeys(request.command for request in requests):
            check_options(command)
    waiting = _make_all_ready([prepare(request, target) for request in requests], output.absolute(), check)
    sent: list[Sent] = []
    try:
        while waiting:
            try:
                sent.append(_send(waiting[0], plan))
            except (MaybeSent, KeyboardInterrupt):  # it may be in the queue: its folder stays
                del waiting[0]
                raise
            del waiting[0]
            on_sent(sent[-1])
    finally:
        for each in waiting:
            _remove(each.folder)
    return sent


def _make_all_ready(jobs: Sequence[Job], output: Path, check: bool) -> list[_Ready]:
    ready: list[_Ready] = []
    folders: list[Path] = []
    try:
        for job in jobs:
            folders.append(new_run_folder(output, job.request.name or name_of_command(job.request.command)))
            place = Place.in_folder(folders[-1], Path.cwd(), job.request.array is not None)
            ready.append(_make_ready(job, place, folders[-1], check))
    except BaseException:
        for folder in folders:
            _remove(folder)
        raise
    return ready


def send(job: Job, place: Place, folder: Path, check: bool = True) -> Sent:
    """Write the script to ``place`` and send it; the record goes to ``folder``."""
    return _send(_make_ready(job, place, folder, check))


def _make_ready(job: Job, place: Place, folder: Path, check: bool) -> _Ready:
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
    return _Ready(job, place, folder, environment, preflight(job, str(script), environment) if check else None)


def _send(ready: _Ready, plan: Plan | None = None) -> Sent:
    """From the moment that ``sbatch`` gives a number nothing may raise: the number must be told."""
    job_id = _sbatch(ready)
    run = _record(ready.job, ready.place, ready.folder, job_id)
    warnings = _not_confirmed(job_id)
    for record, name in ((run, RECORD), (plan, PLAN)):
        if record is not None:
            try:
                record.save(ready.folder / name)
            except OSError as error:
                warnings.append(f"{ready.folder / name} cannot be written: {error.strerror or error}")
    return Sent(run, ready.preflight, tuple(warnings))


def _sbatch(ready: _Ready) -> str:
    try:
        answer = call("sbatch", "--parsable", ready.place.script, environment=ready.environment)
    except SlurmSilent as error:
        raise MaybeSent(error.message, ready.folder) from None
    text = answer.out.strip().split("\n")[-1]
    job_id = text.split(";")[0]  # "123;cluster" in a federation
    if not re.fullmatch(r"\d+", job_id):
        raise MaybeSent(f"sbatch did not give a job number but {text!r}", ready.folder)
    return job_id


def _not_confirmed(job_id: str) -> list[str]:
    try:
        answer = ask("scontrol", "--oneliner", "show", "job", job_id)
    except UserError as error:
        return [f"sbatch gave this number, but Slurm did not confirm it: {error.message}"]
    if answer.code != 0:
        return [f"sbatch gave this number, but Slurm did not confirm it: {answer.said or 'no answer'}"]
    return []


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
