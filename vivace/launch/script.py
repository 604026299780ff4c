"""Renders a ``JobRequest`` for a ``Target`` into the text of a batch script. No file is written, nothing is started.

The script is data: ``templates/job.sh.j2``. Everything a user typed goes through ``shlex.quote`` or ``sbatch_word``.
Called by ``submit`` and, for ``--dry-run``, by the CLI.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import jinja2

from vivace import __version__
from vivace.errors import UserError
from vivace.launch.private import Parted, part, private_path
from vivace.launch.request import JobRequest
from vivace.launch.shape import START_S, Shape, choose_qos, shape_of, split
from vivace.launch.target import Target
from vivace.launch.words import output_pattern, sbatch_word, slurm_time
from vivace.preemption import EXIT_INTERRUPTED

__all__ = ["RANKS", "Job", "Place", "parted", "prepare", "ranks_script", "render"]

RANKS = "ranks.sh"
"""What tells the tasks of an srun inside the job which ranks they are; beside the script of a job with ``once``."""
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Place:
    """Where the script and the logs lie, and where the command runs. The log names are Slurm's patterns."""

    script: str
    stdout: str
    stderr: str
    workdir: str | None = None

    @classmethod
    def in_folder(cls, folder: Path, workdir: Path, array: bool) -> Place:
        name = "%A_%a" if array else "%j"
        return cls(
            script=str(folder / "job.sh"),
            stdout=output_pattern(str(folder), f"{name}.out"),
            stderr=output_pattern(str(folder), f"{name}.err"),
            workdir=str(workdir),
        )


@dataclass(frozen=True)
class Job:
    """A request with the site's rules applied: all that the script says."""

    request: JobRequest
    target: Target
    shape: Shape
    seconds: int
    qos: str | None
    max_requeues: int
    pieces: int = 1


def prepare(request: JobRequest, target: Target) -> Job:
    """Shape, QoS and pieces; a ``UserError`` for what cannot be."""
    shape = shape_of(target, request.gpus, request.gpus_per_task, request.cpus_per_task)
    if not request.split:
        qos = choose_qos(target, request.seconds, request.gpus, request.jobs, request.qos)
        return Job(request, target, shape, request.seconds, qos, request.max_requeues + request.retry_crash)
    if not request.requeue:
        raise UserError("--split needs requeueing: the next piece is the same job, requeued", hint="drop --no-requeue")
    pieces = split(target, request.seconds, request.gpus, request.lead_s, request.jobs)
    most = max(request.max_requeues, pieces.max_requeues) + request.retry_crash
    return Job(request, target, shape, pieces.seconds, request.qos or pieces.qos, most, pieces.count)


def render(job: Job, place: Place) -> str:
    """The script's text. Secrets are not in it: ``parted`` has them."""
    request, shown = job.request, parted(job)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["sh"] = shlex.quote
    environment.filters["comment"] = _one_line
    return environment.get_template("job.sh.j2").render(
        title=_title(job),
        version=__version__,
        script=place.script,
        options=_options(job, place),
        folder=str(Path(place.script).parent),
        array=request.array is not None,
        workdir=place.workdir,
        modules=_modules(job),
        conda=request.conda,
        venv=request.venv,
        variables=shown.variables,
        private=None if shown.private is None else str(private_path(place.script)),
        requeue=request.requeue,
        max_requeues=job.max_requeues,
        limit_s=job.seconds,
        start_s=START_S,
        retry_crash=request.retry_crash,
        exit_interrupted=EXIT_INTERRUPTED,
        once=request.once,
        ranks=str(Path(place.script).with_name(RANKS)),
        srun_options=_srun_options(job),
        command=shown.command,
    )


def ranks_script() -> str:
    return (_TEMPLATES / RANKS).read_text(encoding="utf-8")


def parted(job: Job) -> Parted:
    """The job's variables and its command, and what of them must lie in a private file."""
    return part(job.request.variables, [*_container_words(job.request), *job.request.words])


def _title(job: Job) -> str:
    gpus, nodes = job.shape.gpus, job.shape.nodes
    text = f"{job.request.name}: {gpus} GPU{'s' * (gpus > 1)} on {nodes} node{'s' * (nodes > 1)} of {job.target.name}"
    return f"{text}, {job.pieces} pieces" if job.pieces > 1 else text


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _options(job: Job, place: Place) -> list[str]:
    request, target, shape = job.request, job.target, job.shape
    options = {
        "job-name": request.name,
        "output": place.stdout,
        "error": place.stderr,
        "open-mode": "append",
        "nodes": str(shape.nodes),
        "ntasks-per-node": str(shape.tasks_per_node),
        "gres": f"gpu:{shape.gpus_per_node}",
        "cpus-per-task": None if shape.cpus_per_task is None else str(shape.cpus_per_task),
        "partition": request.partition or target.partition,
        "constraint": request.constraint or target.constraint,
        "account": _account(request.account, target),
        "qos": job.qos,
        "mem": request.mem,
        "reservation": request.reservation,
        "exclude": request.exclude,
        "mail-user": request.mail,
        "mail-type": None if request.mail is None else "END,FAIL,REQUEUE",
        "time": slurm_time(job.seconds),
        "array": request.array,
        "dependency": _dependency(request.after),
    }
    lines = [f"--{name}={sbatch_word(value)}" for name, value in options.items() if value is not None]
    lines.extend(_requeue_options(job))
    return lines + [sbatch_word(option) for option in (*target.options, *request.options)]


def _requeue_options(job: Job) -> list[str]:
    if not job.request.requeue:
        return ["--no-requeue"]
    return ["--requeue", f"--signal=B:USR1@{job.request.lead_s(job.seconds)}"]


def _srun_options(job: Job) -> list[str]:
    options = ["--kill-on-bad-exit=1"]
    if job.shape.cpus_per_task is not None:
        # Since Slurm 22.05 srun no longer takes this from sbatch.
        options.append(f"--cpus-per-task={job.shape.cpus_per_task}")
    if job.request.container and job.request.container_kind == "pyxis":
        options.append(shlex.quote(f"--container-image={job.request.container}"))
    return options


def _container_words(request: JobRequest) -> list[str]:
    if not request.container or request.container_kind == "pyxis":
        return []
    return [request.container_kind, "exec", "--nv", request.container]


def _modules(job: Job) -> tuple[str, ...]:
    """The site's modules, unless the user named some, or brings an environment of another kind."""
    if job.request.modules is not None:
        return job.request.modules
    brings_its_own = job.request.conda or job.request.venv or job.request.container
    return () if brings_its_own else job.target.modules


def _account(account: str | None, target: Target) -> str | None:
    """``xyz`` becomes ``xyz@a100`` where the site's accounts carry the GPU's name."""
    if account is None or target.account_suffix is None:
        return account
    project, at, suffix = account.partition("@")
    if at and suffix != target.account_suffix:
        raise UserError(
            f"the account {account} cannot be used on {target.name}",
            hint=f"--account {project}@{target.account_suffix}",
        )
    return f"{project}@{target.account_suffix}"


def _dependency(after: str | None) -> str | None:
    return f"afterok:{after}" if after and after[0].isdigit() else after
