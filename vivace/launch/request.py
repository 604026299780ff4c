"""``JobRequest``: what a person asks for, before any site's rules are applied. Checked here, rendered in ``script``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vivace.errors import UserError
from vivace.launch.practised import practised
from vivace.launch.words import checked_text

__all__ = ["ContainerKind", "JobRequest"]

ContainerKind = Literal["singularity", "apptainer", "pyxis"]
_ARRAY = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?")
_LARGEST_INDEX = 4_000_000  # Slurm's MaxArraySize can be 4000001 at most (slurm.conf)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEPENDENCY = re.compile(r"\d+(_\d+)?|(singleton|(after\w*):\d+(_\d+)?(\+\d+)?(:\d+(_\d+)?)*)([,?].+)?")


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One job. ``modules=None``: the site's own, an empty tuple: none. ``once``: the command calls srun itself.

    ``practices`` are names for ``vivace run --with``; ``retry_crash`` is how often a crashed command is tried again.
    """

    command: tuple[str, ...]
    name: str
    practices: tuple[str, ...] = ()
    gpus: int = 1
    seconds: int = 7200
    gpus_per_task: int = 1
    cpus_per_task: int | None = None
    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    constraint: str | None = None
    modules: tuple[str, ...] | None = None
    conda: str | None = None
    venv: str | None = None
    mem: str | None = None
    reservation: str | None = None
    exclude: str | None = None
    mail: str | None = None
    container: str | None = None
    container_kind: ContainerKind = "singularity"
    variables: Mapping[str, str] = field(default_factory=dict)
    array: str | None = None
    after: str | None = None
    requeue: bool = True
    max_requeues: int = 10
    retry_crash: int = 0
    signal_lead_s: int | None = None
    split: bool = False
    once: bool = False
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise UserError("there is no command to run", hint="vivace submit … -- python train.py")
        checked_text(self.name, "the job's name")
        for word in (
            self.account,
            self.qos,
            self.partition,
            self.constraint,
            self.conda,
            self.venv,
            self.mem,
            self.reservation,
            self.exclude,
            self.mail,
            self.container,
            *self.options,
        ):
            if word is not None:
                checked_text(word, "an option")
        if any("\0" in word for word in (*self.command, *self.variables.values())):
            raise UserError("a command cannot hold a zero byte")
        for variable in self.variables:
            if not _VARIABLE.fullmatch(variable):
                raise UserError(f"{variable!r} cannot be an environment variable", hint="--env NAME=VALUE")
        if self.array is not None and not _ARRAY.fullmatch(self.array):
            raise UserError(f"{self.array!r} is not an array", hint="--array 0-9, --array 1,3,5 or --array 0-99%8")
        if self.array is not None:
            array_size(self.array)
        if self.after is not None and not _DEPENDENCY.fullmatch(self.after):
            raise UserError(f"{self.after!r} is not a dependency", hint="--after JOB, or --after afterany:JOB")
        if self.retry_crash < 0:
            raise UserError(f"a crash cannot be retried {self.retry_crash} times", hint="--retry-crash 2")
        if self.retry_crash and not self.requeue:
            raise UserError("--retry-crash needs requeueing: a try is the same job, requeued", hint="drop --no-requeue")
        if self.signal_lead_s is not None and not 1 <= self.signal_lead_s < min(self.seconds, 65536):
            raise UserError(
                f"a signal {self.signal_lead_s} s before the end does not fit a job of {self.seconds} s",
                hint="--signal-lead must be longer than a step and a checkpoint, and shorter than --time",
            )

    def lead_s(self, seconds: int) -> int:
        """How long before the end of ``seconds`` the signal comes. Slurm looks at the clock every 30 s only."""
        if self.signal_lead_s is not None:
            return self.signal_lead_s
        return max(1, min(300, max(60, seconds // 10), seconds // 2))

    @property
    def words(self) -> tuple[str, ...]:
        """What a task runs: the command, under ``vivace run`` when there are practices."""
        return practised(self.command, self.practices)

    @property
    def jobs(self) -> int:
        """How many jobs the array makes (one without an array)."""
        return 1 if self.array is None else array_size(self.array)


def array_size(text: str) -> int:
    """How many tasks an array has; an index that is named twice is one task.

    >>> array_size("0-6:2,9%4")
    5
    """
    return len({index for part in text.partition("%")[0].split(",") for index in _indices(part)})


def _indices(part: str) -> range:
    span, _, step = part.partition(":")
    first, _, last = span.partition("-")
    if int(last or first) > _LARGEST_INDEX:
        raise UserError(f"an array's indices end at {_LARGEST_INDEX:,}, not at {last or first}")
    indices = range(int(first), int(last or first) + 1, int(step or 1) or -1)
    if not indices:
        raise UserError(f"{part!r} is an array without a task", hint="--array 0-9, or 0-9:2 for every second")
    return indices
