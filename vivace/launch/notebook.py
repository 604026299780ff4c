"""Slurm from a notebook, with the names and arguments of IDRIS' ``idr_pytools``, for people who come from the course::

    module = "pytorch-gpu/py3/2.6.0"
    jobids = gpu_jobs_submitter("train.py -b 128", n_gpu=[8, 16], module=module, name="demo", account="xyz@a100")
    display_slurm_queue("demo")
    print(search_log(contains=jobids)[0])

Differences, all on purpose: H100 is known; an id may be an int, and several may be given; commands are quoted word by
word; Slurm is asked first whether the job can start; a job that ends at its time limit is told before (``requeue``).
Writes ``slurm/`` in the current folder.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, overload

from vivace.errors import UserError
from vivace.launch.known_options import check_options
from vivace.launch.queue import my_jobs
from vivace.launch.request import JobRequest
from vivace.launch.script import Place, prepare
from vivace.launch.submit import send
from vivace.launch.target import Target, find_target
from vivace.launch.words import output_pattern, seconds_of

__all__ = ["LogFiles", "display_slurm_queue", "gpu_jobs_submitter", "search_log"]

_LOGS = Path("slurm/log")
_CLUSTERS = {"v100": "jean-zay-v100-32g", "a100": "jean-zay-a100", "h100": "jean-zay-h100"}


def gpu_jobs_submitter(
    srun_commands: str | Sequence[str],
    n_gpu: int | Sequence[int] = 1,
    module: str | None = None,
    singularity: str | None = None,
    name: str = "pytorch",
    n_gpu_per_task: int = 1,
    time_max: str = "02:00:00",
    qos: str | None = None,
    partition: str | None = None,
    constraint: str | None = None,
    cpus_per_task: int | None = None,
    exclusive: bool = False,
    account: str | None = None,
    verbose: int = 1,
    email: str | None = None,
    slurm_addon: str = "",
    cluster: str | None = None,
    requeue: bool = True,
    check: bool = True,
) -> list[str]:
    """Send one job a command and number of GPUs (lists give their product). Returns the job ids, as strings.

    ``requeue=False`` switches the warning before the time limit off, and with it the restart of a job that saved
    itself (``vivace.preemption``). A command that does not know the warning ignores it either way. ``check=False`` asks
    neither the script whether it knows its options nor Slurm whether the job can start.
    """
    if " " in name:
        raise UserError(f"the name {name!r} has a space, and log files are found by it", hint=name.replace(" ", "_"))
    commands = [_words(each) for each in ([srun_commands] if isinstance(srun_commands, str) else srun_commands)]
    if check:
        for command in commands:
            check_options(command)
    counts = [n_gpu] if isinstance(n_gpu, int) else list(n_gpu)
    target = _target(cluster, account, partition)
    job_ids = []
    for number, (command, gpus) in enumerate(itertools.product(commands, counts)):
        request = JobRequest(
            command=command,
            name=name,
            gpus=gpus,
            seconds=seconds_of(time_max),
            gpus_per_task=n_gpu_per_task,
            cpus_per_task=cpus_per_task,
            account=account,
            qos=qos,
            partition=partition,
            constraint=constraint,
            modules=_modules(module, target),
            container=singularity,
            mail=email,
            requeue=requeue,
            options=(*(["--exclusive"] if exclusive else []), *shlex.split(slurm_addon.replace("#SBATCH", ""))),
        )
        job_ids.append(_send(request, target, number, verbose, check))
    return job_ids


def _target(cluster: str | None, account: str | None, partition: str | None) -> Target:
    """As idr_pytools does it: the account's suffix tells the partition on Jean Zay; elsewhere Slurm is asked."""
    suffix = (account or "").partition("@")[2]
    if cluster is None and partition == "gpu_p2" and suffix == "v100":
        cluster = "jean-zay-v100-8way"
    return find_target(cluster or _CLUSTERS.get(suffix), partition)


def _words(command: str) -> tuple[str, ...]:
    words = shlex.split(command)
    return ("python", "-u", *words) if words and words[0].endswith(".py") else tuple(words)


def _modules(module: str | None, target: Target) -> tuple[str, ...] | None:
    """The user's module comes after the ones that choose the processor's software (arch/a100)."""
    if module is None:
        return None
    return (*(each for each in target.modules if each.startswith("arch/")), module)


def _send(request: JobRequest, target: Target, number: int, verbose: int, check: bool) -> str:
    job = prepare(request, target)
    _LOGS.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    logs = f"{request.name}@JZ_%j_{job.shape.nodes}nodes_{job.shape.tasks}tasks_{stamp}"
    here = Path.cwd()
    folder = _free_folder(here / "slurm", request.name)
    place = Place(
        script=str(folder / f"{request.name}.slurm"),
        stdout=output_pattern(str(here / _LOGS), f"{logs}.out"),
        stderr=output_pattern(str(here / _LOGS), f"{logs}.err"),
        workdir=str(here),
    )
    sent = send(job, place, folder, check)
    run = sent.run
    for warning in sent.warnings:
        print(f"job {run.job_id}: {warning}", file=sys.stderr)
    if verbose:
        shape = job.shape
        where = f"{shape.nodes} nodes with {shape.tasks_per_node} tasks and {shape.cpus_per_task} cores a task"
        print(f"batch job {number}: {shape.gpus} GPUs distributed on {where}\nSubmitted batch job {run.job_id}")
    assert run.job_id is not None
    return run.job_id


def _free_folder(base: Path, name: str) -> Path:
    for number in itertools.count(1):
        folder = base / f"{name}-{number:03d}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("itertools.count ends never")


def display_slurm_queue(name: str | None = None, timestep: float = 5) -> None:
    """Show the user's jobs until none is left; interrupting it (the notebook's ■) leaves the jobs alone."""
    with contextlib.suppress(KeyboardInterrupt):
        while jobs := my_jobs(name):
            _clear_output()
            print(f"{'JOBID':>12} {'NAME':20} {'ST':10} {'TIME':>9} {'NODES':>5} NODELIST(REASON)")
            for job in jobs:
                where = job.node_list or f"({job.reason})"
                print(f"{job.job_id:>12} {job.name:20} {job.state:10} {job.run_s or 0:>8}s {job.nodes:>5} {where}")
            time.sleep(timestep)
        print("\n Done!")


def _clear_output() -> None:
    with contextlib.suppress(ImportError):  # only in a notebook
        from IPython.display import clear_output

        clear_output(wait=True)


class LogFiles(dict[str, list[str]]):
    """Lists of files under "stdout" and "stderr". A number stands for a file of stderr: the course's slides write
    ``search_log(contains=jobid, with_err=True)[0]``."""

    def __missing__(self, key: object) -> str:
        if isinstance(key, int):
            return self["stderr"][key]
        raise KeyError(key)


@overload
def search_log(name: str = "*", contains: object = "", with_err: Literal[False] = False) -> list[str]: ...
@overload
def search_log(name: str = "*", contains: object = "", *, with_err: Literal[True]) -> LogFiles: ...
@overload
def search_log(name: str, contains: object, with_err: Literal[True]) -> LogFiles: ...


def search_log(name: str = "*", contains: object = "", with_err: bool = False) -> list[str] | LogFiles:
    """Log files by the job's name and by a part of the rest: a job id (a text or an int), or a list of them.

    A sorted list for each part, one after the other. With ``with_err`` both kinds of files, as ``LogFiles``.
    """
    parts = contains if isinstance(contains, (list, tuple)) else [contains]
    stems = list(dict.fromkeys(stem for part in parts for stem in _log_stems(name, str(part))))
    out = [f"{stem}.out" for stem in stems]
    if not with_err:
        return out
    return LogFiles(stdout=out, stderr=[file for stem in stems if Path(file := f"{stem}.err").exists()])


def _log_stems(name: str, part: str) -> list[str]:
    text = glob.escape(part)
    # A number is a job's first of all: as a part of any word, 12 would be found in every date.
    patterns = [f"JZ_{text}_*", f"*{text}*"] if text.isdigit() else [f"*{text}*"]
    for pattern in patterns:
        if found := sorted(glob.glob(f"./{_LOGS}/{name}@{pattern}.out")):
            return [file.removesuffix(".out") for file in found]
    return []
