"""How one job stands or ended: state, exit code, and what it died of, from Slurm and from its logs.

Asks ``scontrol`` (jobs of the last minutes), then ``sacct`` (older ones, where there are accounts). Reads the logs.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.launch.jobs import PAUSED, JobInfo, from_scontrol, plain_reason, run_state
from vivace.launch.slurm import Answer, SlurmSilent, ask, refusal, slurm_is_here
from vivace.records.run import RunState

__all__ = [
    "EVERY_START", "SACCT_FIELDS", "Answer", "Verdict", "ask_slurm", "ask_tasks", "consumed_energy_j", "crashes",
    "energy_j", "from_sacct", "of_array", "verdict", "whole_run_s",
]  # fmt: skip

# The name comes last: it may hold the separator.
SACCT_FIELDS = "JobID,State,ExitCode,ElapsedRaw,TimelimitRaw,Start,Partition,QOS,NNodes,JobName"
_CANNOT_WRITE_LOG = 53  # the "signal" of a job whose log files could not be opened; its exit code is 0
_UNHEARD = 128 + signal.SIGUSR1
EVERY_START = ("--allocations", "--duplicates", "--noheader", "--parsable2")  # a requeued job has a row a start
_TAIL_BYTES = 200_000
_OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError|oom[-_]kill|Out Of Memory|std::bad_alloc|DefaultCPUAllocator: can't allocate"
)
_TIME_LIMIT = re.compile(r"DUE TO TIME LIMIT")


@dataclass(frozen=True)
class Verdict:
    """``state`` is ours: it knows an out-of-memory that Slurm calls a failure. ``because`` says it in words."""

    state: RunState
    because: str
    last_error: str | None = None


def ask_slurm(job_id: str) -> JobInfo | None:
    """The job as Slurm knows it; None when it has forgotten it (or there is no Slurm here).

    An array's first task stands for it: ``ask_tasks`` has them all. ``SlurmSilent`` when nothing can be known.
    """
    tasks = ask_tasks(job_id)
    return tasks[0] if tasks else None


def ask_tasks(job_id: str) -> list[JobInfo]:
    """One entry a task of an array (tasks that wait together share one), in order; one for a plain job."""
    if not slurm_is_here():
        return []
    answer = ask("scontrol", "--oneliner", "show", "job", job_id)
    if answer.code == 0 and (lines := [line for line in answer.out.splitlines() if line.startswith("JobId=")]):
        return sorted((from_scontrol(line) for line in lines), key=_task_number)
    accounts = ask("sacct", "-j", job_id, *EVERY_START, "--format", SACCT_FIELDS)
    starts = from_sacct(accounts.out) if accounts.code == 0 else []
    if not starts and isinstance(silent := refusal("scontrol", answer), SlurmSilent):
        raise silent
    of_task: dict[str, list[JobInfo]] = {}
    for start in starts:
        of_task.setdefault(start.job_id, []).append(start)
    return sorted((replace(each[-1], restarts=len(each) - 1) for each in of_task.values()), key=_task_number)


def _task_number(job: JobInfo) -> int:
    number = re.search(r"_\[?(\d+)", job.job_id)
    return int(number[1]) if number else -1


def from_sacct(text: str) -> list[JobInfo]:
    """The rows of ``sacct --parsable2 --noheader --format SACCT_FIELDS``."""
    jobs = []
    for line in text.splitlines():
        words = line.split("|", 9)
        if len(words) != 10:
            continue
        job_id, state, exit_code, elapsed, limit, start, partition, qos, nodes, name = words
        code, _, number = exit_code.partition(":")
        info = JobInfo(
            job_id=job_id,
            name=name,
            state=state.split()[0] if state else "UNKNOWN",  # "CANCELLED by 1000"
            partition=partition,
            qos=qos,
            nodes=int(nodes) if nodes.isdigit() else 0,
            run_s=int(elapsed) if elapsed.isdigit() else None,
            limit_s=int(limit) * 60 if limit.isdigit() else None,
            start=start if start not in ("Unknown", "None", "") else None,
            exit_code=int(code) if code.isdigit() else None,
            signal=int(number) or None if number.isdigit() else None,
        )
        jobs.append(replace(info, exit_code=None, signal=None) if info.active else info)  # sacct says 0:0 of those
    return jobs


def energy_j(job_id: str) -> float | None:
    """What Slurm's own meter counted over the job's last life, where the site has one; None elsewhere."""
    if not slurm_is_here():
        return None
    answer = ask("sacct", "--noheader", "--parsable2", "-j", job_id, "--format", "JobID,ConsumedEnergyRaw")
    return consumed_energy_j(answer.out) if answer.code == 0 else None


def consumed_energy_j(text: str) -> float | None:
    """The job's row of ``sacct --format JobID,ConsumedEnergyRaw``; where it is empty, the largest of its steps'.

    Steps run side by side on the same nodes (the batch script waits while srun trains): their sum would count twice.

    >>> consumed_energy_j("17|\\n17.batch|120\\n17.0|5000")
    5000.0
    """
    rows = [line.partition("|") for line in text.splitlines()]
    joules = [(name, float(value)) for name, _, value in rows if re.fullmatch(r"\d+(\.\d+)?", value.strip())]
    whole = max((value for name, value in joules if "." not in name), default=0.0)
    return whole or max((value for _, value in joules), default=0.0) or None


def whole_run_s(info: JobInfo) -> int | None:
    """How long all starts of a job ran together; None where Slurm remembers the last one only (without accounts)."""
    if not info.restarts or not slurm_is_here():
        return info.run_s
    answer = ask("sacct", "-j", info.job_id, *EVERY_START, "--format", "ElapsedRaw")
    starts = [int(word) for word in answer.out.split() if word.isdigit()] if answer.code == 0 else []
    return sum(starts) if len(starts) > info.restarts else None


def crashes(run_folder: Path, job_id: str) -> list[str]:
    """What the batch script wrote down about crashes that it retried (``--retry-crash``), one line each."""
    with contextlib.suppress(OSError):
        return (run_folder / f"{job_id}.crashes").read_text().splitlines()
    return []


def verdict(info: JobInfo, stderr: Path | None, stdout: Path | None = None) -> Verdict:
    """What became of it, with the logs as witnesses."""
    state = run_state(info.state)
    if state == "queued" and (why := plain_reason(info.reason)):
        return Verdict(state, why)
    if info.state in PAUSED:
        return Verdict(state, f"it stands still ({info.state.lower()}), and goes on when Slurm or its owner lets it")
    if state in ("queued", "running", "completed", "cancelled", "node-failure"):
        return Verdict(state, _SENTENCES[state])
    text = "".join(_tail(path) for path in (stdout, stderr) if path is not None)
    error = last_error(text)
    if state == "timeout" or _TIME_LIMIT.search(text):
        return Verdict(
            "timeout", "it ran out of time: ask for more with --time, or cut it in pieces with --split", error
        )
    if state == "out-of-memory" or _OUT_OF_MEMORY.search(text):
        return Verdict("out-of-memory", "it ran out of memory", error)
    if info.signal == _CANNOT_WRITE_LOG and not info.exit_code:
        where = f" in {stdout.parent}" if stdout else ""
        return Verdict(state, f"it could not start: Slurm could not write its log files{where}; send it again", error)
    if info.signal:
        return Verdict(state, f"it was ended by signal {info.signal}", error)
    return Verdict(state, _exit_sentence(info.exit_code), error)


def of_array(states: Sequence[RunState]) -> Verdict:
    """What became of an array as a whole: over when all its tasks are, and well when all ended well."""
    counts = Counter(states)
    because = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    whole: RunState = next((state for state in _WHOLE if counts[state]), "completed")
    return Verdict(whole, f"of {len(states)} tasks: {because}")


_WHOLE: tuple[RunState, ...] = (
    "running", "queued", "unknown", "out-of-memory", "timeout", "node-failure", "failed", "cancelled",
)  # fmt: skip
_SENTENCES = {
    "queued": "it waits",
    "running": "it runs",
    "completed": "it ended well",
    "cancelled": "it was cancelled",
    "node-failure": "one of its nodes failed",
}


def _exit_sentence(code: int | None) -> str:
    if code is None:
        return "its end is not known"
    if code == 85:
        return "it was interrupted and saved a checkpoint, but was not requeued: send it again to go on"
    if code == _UNHEARD:
        return (
            "its time was nearly over, and SIGUSR1, which says so, ended it: nothing listened, nothing was saved "
            "(vivace.preemption listens; --no-requeue sends no signal)"
        )
    if code > 128:
        return f"a process was ended by signal {code - 128}"
    return "the command was not found" if code == 127 else f"the command failed with exit code {code}"


def last_error(text: str) -> str | None:
    """The last line that names an error: what a person looks for first.

    >>> last_error("step 1\\nTraceback (most recent call last):\\nValueError: no\\nsrun: error: node1")
    'ValueError: no'
    """
    lines = [line.strip() for line in text.splitlines()]
    own = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    shells = [line for line in lines if re.search(r"(command )?not found$|No such file or directory$", line)]
    other = [line for line in lines if re.search(r"\berror\b|not found|No module named|Killed", line, re.IGNORECASE)]
    found = own or shells or other  # srun's own complaint comes after the shell's, and says less
    return found[-1][:500] if found else None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
