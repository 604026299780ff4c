"""Calls Slurm's own programs and says clearly when they are not there, do not answer, or refuse.

Starts sbatch, squeue, scontrol, sacct, sacctmgr, scancel, sinfo; no shell. Called by all of ``vivace.launch``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from vivace.errors import UserError

__all__ = ["Answer", "SlurmRefused", "SlurmSilent", "ask", "call", "refusal", "slurm_is_here"]

_TIMEOUT_S = 60.0

# What Slurm says, and what a person can do about it.
_HINTS = (
    (r"invalid partition", "see the partitions with sinfo, then --partition NAME"),
    (
        r"invalid account",
        "see your accounts with: sacctmgr show assoc user=$USER format=account,qos; then --account NAME",
    ),
    (r"invalid qos", "see your QoS with: sacctmgr show assoc user=$USER format=account,qos; then --qos NAME"),
    (r"invalid feature", "--constraint names a feature that no node has; see them with: sinfo -o '%P %f'"),
    (r"node configuration is not available", "no node has so many GPUs or cores: see sinfo -o '%P %G %c %m %D'"),
    (r"node count specification invalid|more processors", "the partition has fewer nodes: see sinfo -o '%P %D'"),
    (r"time limit|time_limit|timelimit", "ask for less with --time, or let vivace cut the job in pieces with --split"),
    (r"job dependency problem", "--after needs the id of a job that Slurm still knows"),
    (r"invalid gres", "this Slurm has no GPUs under the name gpu: see sinfo -o '%P %G'"),
    (r"array", "--array is a list such as 0-9 or 1,3,5 with an optional limit, 0-99%8"),
)
_NO_ANSWER = re.compile(
    r"unable to contact|connection refused|connection timed out|connect failure|communication (connection )?failure"
    r"|socket timed out|zero bytes|unable to establish|no route to host",
    re.IGNORECASE,
)


class SlurmRefused(UserError):
    """Slurm answered no. ``said`` holds its own words."""

    def __init__(self, message: str, said: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.said = said


class SlurmSilent(SlurmRefused):
    """Slurm did not answer: nothing is known, which is not the same as "no such job"."""

    def __init__(self, program: str, said: str) -> None:
        super().__init__(
            f"Slurm does not answer ({program}: {said})", said, hint="try again, or see: scontrol ping; jobs run on"
        )


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Slurm's complaint without the program's name, on one line."""
        lines = [re.sub(r"^(slurm_\w+|s\w+): (error: )?", "", line.strip()) for line in self.err.splitlines()]
        return "; ".join(dict.fromkeys(line for line in lines if line))


def slurm_is_here() -> bool:
    return shutil.which("sbatch") is not None


def ask(
    program: str, *words: str, timeout_s: float = _TIMEOUT_S, environment: Mapping[str, str] = os.environ
) -> Answer:
    """Run one of Slurm's programs; what it answers, also when that is no."""
    if shutil.which(program) is None:
        raise UserError(
            f"Slurm is not on this machine: {program} was not found",
            hint="log in to the cluster first, or run here: vivace submit --launcher local (torchrun)",
        )
    try:
        # The C locale: Slurm's dates and messages are parsed.
        done = subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env={**environment, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"},
        )
    except subprocess.TimeoutExpired:
        raise SlurmSilent(program, f"no answer in {timeout_s:g} s") from None
    except OSError as error:
        raise UserError(f"cannot start {program}: {error.strerror or error}") from None
    return Answer(done.returncode, done.stdout, done.stderr)


def call(
    program: str, *words: str, timeout_s: float = _TIMEOUT_S, environment: Mapping[str, str] = os.environ
) -> Answer:
    """As ``ask``, but no is a ``SlurmRefused`` with Slurm's words and a hint."""
    answer = ask(program, *words, timeout_s=timeout_s, environment=environment)
    if answer.code != 0:
        raise refusal(program, answer)
    return answer


def refusal(program: str, answer: Answer) -> SlurmRefused:
    said = answer.said or f"exit code {answer.code}, without a word"
    if _NO_ANSWER.search(said):
        return SlurmSilent(program, said)
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, said, re.IGNORECASE)), None)
    return SlurmRefused(f"{program} refused: {said}", said, hint)
