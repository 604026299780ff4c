"""``vivace submit -- COMMAND``: parse, call ``vivace.launch``, print."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.logs import follow_job
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.launch.local import run_locally
from vivace.launch.own_variables import said_of
from vivace.launch.planned import planned
from vivace.launch.practised import read_practices
from vivace.launch.preflight import Preflight
from vivace.launch.private import part
from vivace.launch.request import ContainerKind, JobRequest
from vivace.launch.script import Place, parted, prepare, render
from vivace.launch.storage import storage_notes
from vivace.launch.submit import SCRIPT, Sent, product
from vivace.launch.submit import submit as send_jobs
from vivace.launch.target import Target, find_target
from vivace.launch.words import script_of, seconds_of
from vivace.measure.folder import name_of_command
from vivace.records.plan import Plan
from vivace.records.run import Run
from vivace.train.planned import settings_of, train_words
from vivace.tune.running import read_words

__all__ = ["submit"]

Text = str | None
DEFAULT_SECONDS = 2 * 3600
_COMMANDS_BYTES = 2**20  # of a file of commands


def submit(
    command: Command = None,
    cluster: Annotated[
        Text, typer.Option(help="A cluster from `vivace hardware --clusters`. Default: ask Slurm.")
    ] = None,
    gpus: Annotated[
        Text, typer.Option(help="Number of GPUs, or a list with one job each (4,8,16). Default: 1.")
    ] = None,
    time: Annotated[Text, typer.Option(help="Time limit: 5:00:00, 1-12 (days-hours) or 20h. Default: 2 h.")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Cluster, GPUs and time of a plan (`vivace plan … --save FILE`); without COMMAND, train it."),
    ] = None,
    practices: Annotated[
        Text, typer.Option("--with", help="Train with these practices (bf16,compile), or @FOLDER of a tune.")
    ] = None,
    name: Annotated[Text, typer.Option(help="Name of the job. Default: the script's.")] = None,
    account: Annotated[Text, typer.Option(help="Account; the site's suffix is added (xyz → xyz@a100).")] = None,
    qos: Annotated[Text, typer.Option(help="QoS. Default: the shortest one that fits.")] = None,
    partition: Annotated[Text, typer.Option(help="Partition. Default: the cluster's.")] = None,
    constraint: Annotated[Text, typer.Option(help="Node feature. Default: the cluster's.")] = None,
    module: Annotated[
        list[str] | None, typer.Option(help="Module to load, repeatable; 'none' for none. Default: the cluster's.")
    ] = None,
    conda: Annotated[Text, typer.Option(help="Conda environment to activate.")] = None,
    venv: Annotated[Text, typer.Option(help="Virtual environment to activate (its folder).")] = None,
    container: Annotated[Text, typer.Option(help="Image to run the command in.")] = None,
    container_kind: Annotated[ContainerKind, typer.Option(help="Container runtime.")] = "singularity",
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the job, or NAME to pass yours on; repeatable.")
    ] = None,
    mem: Annotated[Text, typer.Option(help="Memory per node: 64G. Default: the site's.")] = None,
    reservation: Annotated[Text, typer.Option(help="Reservation to run in.")] = None,
    exclude: Annotated[Text, typer.Option(help="Nodes to stay away from: node[3-4].")] = None,
    mail: Annotated[Text, typer.Option(help="Address to write to when the job ends, fails or is requeued.")] = None,
    gpus_per_task: Annotated[int, typer.Option(help="GPUs per process.")] = 1,
    cpus_per_task: Annotated[
        int | None, typer.Option(help="Cores per process. Default: the share of its GPUs.")
    ] = None,
    array: Annotated[
        Text, typer.Option(help="Job array: 0-9, 1,3,5 or 0-99%8; $SLURM_ARRAY_TASK_ID is the index.")
    ] = None,
    after: Annotated[Text, typer.Option(help="Start after JOB succeeds; or afterany:JOB, singleton.")] = None,
    commands: Annotated[Path | None, typer.Option(help="File with one command per line: one job each.")] = None,
    split: Annotated[
        bool, typer.Option(help="Split a job that is too long for any QoS, and requeue it until done.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Run the command once; it calls srun itself.")] = False,
    requeue: Annotated[bool, typer.Option(help="Signal the ranks before the time limit, and requeue the job.")] = True,
    max_requeues: Annotated[int, typer.Option(help="Maximum number of restarts.")] = 10,
    retry_crash: Annotated[int, typer.Option(help="Restarts after a crash, in addition to --max-requeues.")] = 0,
    signal_lead: Annotated[
        int | None, typer.Option(help="Seconds from the signal to the time limit. Default: 60 to 300.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--sbatch", help="Any other sbatch option: --sbatch=--exclusive.")
    ] = None,
    launcher: Annotated[Literal["slurm", "local"], typer.Option(help="local: torchrun on this machine.")] = "slurm",
    output: Output = DEFAULT_RUNS,
    check: Annotated[
        bool, typer.Option(help="Check the script's options and ask Slurm first whether the job can start.")
    ] = True,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show the job's output until it ends. Ctrl-C does not stop it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script and submit nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print only the records on stdout.")] = False,
) -> None:
    """Submit a training command to Slurm, one process per GPU. Script and logs are kept in vivace-runs/NAME-001.

    Examples:

        vivace submit --cluster jean-zay-a100 --gpus 16 --time 5:00:00 --account xyz -- python train.py -b 128

        vivace submit --with bf16,channels_last -- python train.py          as `vivace run` does it, on every rank

        vivace submit --cluster jean-zay-h100 --gpus 4,8,16 --dry-run -- python train.py

        vivace submit --gpus 8 --time 90h --split -- python train.py        in pieces that the QoS takes

        vivace submit --plan plan.json                  what was planned, by `vivace train`

        vivace submit --plan plan.json -- python train.py        what was planned, in pieces if the QoS needs it

        vivace submit --follow -- python train.py        with its output here, until it ends

        vivace submit --launcher local --gpus 2 -- python train.py          torchrun, here and now
    """
    loaded = Plan.load(plan) if plan is not None else None
    wanted = planned(loaded) if loaded is not None else None
    if loaded is not None and wanted is not None:
        if not command and commands is None:
            if gpus not in (None, str(loaded.gpus)) or gpus_per_task != 1:
                raise UserError(
                    f"the plan's layout has {loaded.gpus} processes, one per GPU",
                    hint="leave out --gpus and --gpus-per-task, or plan again",
                )
            command, name = list(train_words(settings_of(loaded))), name or loaded.model
        cluster, gpus = cluster or wanted.cluster, gpus or str(wanted.gpus)
        split = split or time is None
    request = JobRequest(
        command=tuple(command or ["-"]),
        name=name or "-",
        practices=_practices(practices),
        seconds=seconds_of(time) if time else (wanted and wanted.seconds) or DEFAULT_SECONDS,
        gpus_per_task=gpus_per_task,
        cpus_per_task=cpus_per_task,
        account=account,
        qos=qos,
        partition=partition,
        constraint=constraint,
        modules=_modules(module),
        conda=conda,
        venv=_absolute(venv),
        mem=mem,
        reservation=reservation,
        exclude=exclude,
        mail=mail,
        container=container,
        container_kind=container_kind,
        variables=_variables(env),
        array=array,
        after=after,
        requeue=requeue,
        max_requeues=max_requeues,
        retry_crash=retry_crash,
        signal_lead_s=signal_lead,
        split=split,
        once=once,
        options=tuple(option or ()),
    )
    requests = _requests(request, command, commands, gpus or "1", name)
    _warn_of_missing_scripts(requests)
    if launcher == "local":
        _run_here(requests, output, json, dry_run)
    target = find_target(cluster, partition)
    if dry_run:
        _print_scripts(requests, target, output, json)
        return
    if follow and (json or len(requests) > 1):
        raise UserError("--follow shows one job's output", hint="drop --json, or send one job; then vivace logs JOB -f")
    sent = _send(requests, target, output, check, loaded, json)
    if follow:
        raise typer.Exit(follow_job(sent[-1], output))


def _requests(
    request: JobRequest, command: list[str] | None, file: Path | None, gpus: str, name: str | None
) -> list[JobRequest]:
    from dataclasses import replace

    if bool(command) == bool(file):
        raise UserError("give either a command or a file of commands", hint="vivace submit … -- python train.py")
    every = _commands_of(file) if file else [command or []]
    made = product(request, every, _counts(gpus))
    return [replace(each, name=name or name_of_command(each.command)) for each in made]


def _warn_of_missing_scripts(requests: list[JobRequest]) -> None:
    """Only a warning: a container or the compute nodes may have what this machine has not."""
    scripts = dict.fromkeys(script for request in requests if (script := script_of(request.command)))
    for script in scripts:
        if not Path(script).exists():
            note = f"note: {script} does not exist here ({os.getcwd()}); the job would start there"
            make_console(stderr=True, highlight=False, soft_wrap=True).print(note, style="yellow", markup=False)


def _commands_of(file: Path) -> list[list[str]]:
    try:
        lines = read_user_text(file, _COMMANDS_BYTES).splitlines()
        found = [words for line in lines if (words := shlex.split(line, comments=True))]
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{file} has a line that is not a command: {error}", hint="close its quotes") from None
    if not found:
        raise UserError(f"{file} contains no command", hint="one command per line; # begins a comment")
    return found


def _counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{text!r} is not a number of GPUs", hint="--gpus 16, or a list: --gpus 4,8,16") from None


def _practices(text: str | None) -> tuple[str, ...]:
    """Read as the job's own ``vivace run`` will read them: a wrong word must not wait in the queue to be found."""
    if text is None:
        return ()
    words = read_practices(text)
    read_words(",".join(words))
    return words


def _absolute(venv: str | None) -> str | None:
    """The job runs in the same folders: what is no environment here will not be one there."""
    if venv is None:
        return None
    path = Path(venv).expanduser().absolute()
    if not (path / "bin" / "activate").is_file():
        raise UserError(f"{venv} is no virtual environment: it has no bin/activate", hint="--venv FOLDER")
    return str(path)


def _modules(given: list[str] | None) -> tuple[str, ...] | None:
    return None if not given else () if given == ["none"] else tuple(given)


def _variables(given: list[str] | None) -> dict[str, str]:
    """``NAME`` alone takes the value that it has here, so that a secret need not be typed."""
    pairs = [text.partition("=") for text in given or ()]
    if wrong := next((name for name, equals, _ in pairs if not equals and name not in os.environ), None):
        raise UserError(f"--env {wrong} has no value here", hint=f"--env {wrong}=VALUE, or export it first")
    return {name: value if equals else os.environ[name] for name, equals, value in pairs}


def _run_here(requests: list[JobRequest], output: Path, json: bool, dry_run: bool) -> None:
    from vivace.launch.local import torchrun_words

    if dry_run:
        for request in requests:
            typer.echo(shlex.join(torchrun_words(request.words, request.gpus)))
        raise typer.Exit
    runs = [run_locally(request, output) for request in requests]
    if json:
        typer.echo(dumps([loads(run.to_json()) for run in runs], indent=2))
    else:
        for run in runs:
            make_console(stderr=True).print(
                f"{run.state}, exit code {run.exit_code}; logs in {run.folder}", markup=False
            )
    raise typer.Exit(max(run.exit_code or 0 for run in runs))


def _print_scripts(requests: list[JobRequest], target: Target, output: Path, json: bool) -> None:
    scripts = []
    for request in requests:
        folder = output.absolute() / f"{request.name}-NNN"
        place = Place.in_folder(folder, Path(os.getcwd()), request.array is not None)
        job = prepare(request, target)
        scripts.append(render(job, place))
        _note_secrets(parted(job).hidden)
    typer.echo(dumps([{"script": text} for text in scripts], indent=2) if json else "\n".join(scripts).rstrip("\n"))


def _note_variables(request: JobRequest, target: Target) -> None:
    console = make_console(stderr=True, highlight=False, soft_wrap=True)
    anywhere = Place(script="job.sh", stdout="%j.out", stderr="%j.err")
    for note in said_of(render(prepare(request, target), anywhere)):
        console.print(f"note: {note}", style="yellow", markup=False)


def _note_secrets(hidden: Sequence[str]) -> None:
    if hidden:
        note = f"note: {', '.join(hidden)} may be secret: kept in job.private.sh, which only you can read"
        make_console(stderr=True, highlight=False, soft_wrap=True).print(note, style="yellow", markup=False)


def _send(
    requests: list[JobRequest], target: Target, output: Path, check: bool, plan: Plan | None, json: bool
) -> list[str]:
    records: list[dict[str, Any]] = []
    console = make_console(highlight=False, soft_wrap=True)
    for note in storage_notes(target, output.absolute()):
        make_console(stderr=True, highlight=False, soft_wrap=True).print(f"note: {escape(note)}", style="yellow")
    for request in requests:
        _note_secrets(part(request.variables, request.words).hidden)
        _note_variables(request, target)

    def tell(sent: Sent) -> None:
        found = asdict(sent.preflight) if sent.preflight else None
        records.append({**loads(sent.run.to_json()), "preflight": found, "warnings": list(sent.warnings)})
        if not json:
            _print_sent(console, sent.run, sent.preflight)
        for warning in sent.warnings:
            text = f"warning: job {sent.run.job_id} is in the queue, but {warning}"
            make_console(stderr=True, highlight=False, soft_wrap=True).print(text, style="yellow", markup=False)

    try:
        send_jobs(requests, target, output, check, plan, tell)
    except UserError as error:
        if records:
            numbers = ", ".join(record["job_id"] for record in records)
            error.message += f" ({len(records)} of {len(requests)} jobs are in the queue: {numbers})"
        raise
    finally:
        if json:
            typer.echo(dumps(records, indent=2))
    return [record["job_id"] for record in records]


def _print_sent(console: Console, run: Run, found: Preflight | None) -> None:
    shape = f"{run.gpus} GPU{'s' * ((run.gpus or 0) > 1)} on {run.nodes} node{'s' * ((run.nodes or 0) > 1)}"
    qos = f", QoS {run.qos}" if run.qos else ""
    pieces = f", {run.pieces} pieces" if run.pieces > 1 else ""
    console.print(f"[bold]job {run.job_id}[/] {escape(run.name or '')}: {shape}{escape(qos)}{pieces}")
    if found and found.expected_start:
        console.print(f"  expected start {found.expected_start}")
    for note in found.notes if found else ():
        console.print(f"  note: {escape(note)}", style="yellow")
    script = Path(run.script or SCRIPT)
    console.print(
        f"  script and logs in {escape(str(script.parent))}; follow: vivace logs {run.job_id} -f", style="dim"
    )
