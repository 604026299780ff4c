"""``vivace logs JOB``: parse, call ``vivace.launch.logs``, print."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from vivace.cli.console import make_console
from vivace.cli.runs import DEFAULT_RUNS, Output, places
from vivace.errors import UserError
from vivace.launch.logs import Logs, find_logs
from vivace.launch.logs import follow as follow_file
from vivace.launch.slurm import SlurmSilent
from vivace.launch.status import ask_slurm, verdict

__all__ = ["follow_job", "logs"]


def logs(
    job: Annotated[str, typer.Argument(help="Number, name or pattern of a job; the newest match is shown.")],
    err: Annotated[bool, typer.Option("--err", help="Show stderr instead of stdout.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the job ends. Ctrl-C does not stop the job.")
    ] = False,
    path: Annotated[bool, typer.Option("--path", help="Print the name of the log file instead.")] = False,
    output: Output = DEFAULT_RUNS,
) -> None:
    """Show the output of a job.

    Examples:

        vivace logs 1234 -f          as it comes, until the job is over

        vivace logs train --err      stderr of the newest job called train

        vivace logs 1234_7           one task of an array
    """
    _show_all(job, err, follow, path, output)


def follow_job(job: str, output: Path) -> int:
    """The output of a job that was just sent, until it ends. 0 when it ended well or still runs (Ctrl-C), else 1."""
    _show_all(job, False, True, False, output)
    info = ask_slurm(job)
    if info is None or info.active:
        return 0
    errors = find_logs(job, *places(output))[0].stderr
    found = verdict(info, errors)
    say = make_console(stderr=True, highlight=False, soft_wrap=True)
    say.print(f"job {job} {found.state}: {found.because}; stderr: {errors}", markup=False)
    return 0 if found.state == "completed" else 1


def _show_all(job: str, err: bool, follow: bool, path: bool, output: Path) -> None:
    found = find_logs(job, *places(output))
    with contextlib.suppress(KeyboardInterrupt):
        for each in found:
            file = each.stderr if err else each.stdout
            if path:
                typer.echo(str(file))
                continue
            if len(found) > 1:
                typer.echo(f"==> {each.job_id} <==")
            _show(each, file, follow)


def _show(logs: Logs, file: Path, follow: bool) -> None:
    silent: list[SlurmSilent] = []

    def still_active() -> bool:
        try:
            info = ask_slurm(logs.job_id)
        except SlurmSilent as error:  # the job may well run on: so do we
            if not silent:
                make_console(stderr=True).print(f"vivace: {error.message}; still following", markup=False)
            silent.append(error)
            return True
        silent.clear()
        return info is not None and info.active

    if not file.parent.is_dir():
        raise _folder_is_gone(logs, file)
    if not follow and not file.exists():
        info = ask_slurm(logs.job_id)
        raise UserError(
            f"{file} does not exist" + (f"; the job is {info.state.lower()}" if info else ""),
            hint=f"vivace logs {logs.job_id} -f waits for it" if info and info.active else None,
        )
    chunks = follow_file(file, still_active) if follow else [file.read_bytes()]
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _folder_is_gone(logs: Logs, file: Path) -> UserError:
    """It was made when the job was sent: someone removed it. A running job goes on; one that starts, cannot."""
    info = ask_slurm(logs.job_id)
    text = f"the folder of its logs no longer exists: {file.parent}"
    if info is not None and info.active:
        return UserError(
            f"{text}; the job is {info.state.lower()}, and its output is lost",
            hint=f"Slurm cannot start (or requeue) a job without it: mkdir -p {quote(str(file.parent))}",
        )
    return UserError(text + (f"; the job is {info.state.lower()}" if info else ""))
