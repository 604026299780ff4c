"""Asks Slurm to start this job again, patiently, and looks whether it will. Calls ``scontrol``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping

__all__ = ["DEFAULT_MAX_REQUEUES", "EXIT_INTERRUPTED", "job_id", "max_requeues_of", "requeue"]

EXIT_INTERRUPTED = 85  # "I saved; start me again": agreed with vivace's job script, and free in sysexits.h and bash
DEFAULT_MAX_REQUEUES = 10
LONGEST_PATIENCE_S = 1500.0  # the other ranks wait in a barrier, which gloo gives up after 30 minutes
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
_REFUSALS = 3
_SCONTROL_S = 60.0
_GOES_ON = ("RUNNING", "TIMEOUT", "PREEMPTED")  # a job in any other state was ended by someone who meant it
_REQUEUED = ("PENDING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RUNNING", "TIMEOUT")
_TIME_IS_OVER = "COMPLETING Reason=TimeLimit"  # what Slurm calls TIMEOUT once its last process has ended
_FORGOTTEN = "Invalid job id"


def job_id(environment: Mapping[str, str] = os.environ) -> str | None:
    """The id to requeue. The last task of an array bears the array's own id: that one would requeue all tasks."""
    array = environment.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{environment['SLURM_ARRAY_TASK_ID']}"
    return environment.get("SLURM_JOB_ID")


def max_requeues_of(environment: Mapping[str, str]) -> int:
    text = environment.get("VIVACE_MAX_REQUEUES", "")
    return int(text) if text.isdigit() else DEFAULT_MAX_REQUEUES


def requeue(max_requeues: int = DEFAULT_MAX_REQUEUES) -> str:
    """Ask Slurm to start this job again, and look whether it will. Returns what happened, in words.

    While Slurm's controller does not answer, it is asked again and again, for as long as the job may run.
    """
    job = job_id()
    if job is None:
        return "not in a Slurm job: start the same command again to go on"
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if restarts >= max_requeues:
        return f"not requeued again after {restarts} restarts"
    if shutil.which("scontrol") is None:
        return f"no scontrol here: exit code {EXIT_INTERRUPTED} asks the batch script to requeue"
    until = _patient_until(os.environ)
    for refusal in range(1, _REFUSALS + 1):
        state, silence = _state(job, until)
        if state is None:
            return f"Slurm did not answer, so job {job} is not requeued: {silence}"
        if state not in _GOES_ON:
            return f"not requeued: the job is {state}"
        failure = _scontrol("requeue", job)[1]
        if not failure:
            break
        if refusal == _REFUSALS:
            return f"scontrol could not requeue job {job}: {failure}"
        time.sleep(FIRST_PAUSE_S)
    after, _silence = _state(job, until)
    if after not in _REQUEUED:
        return f"scontrol took the requeue of job {job}, but the queue shows {after or 'nothing'}"
    return f"job {job} is requeued (restart {restarts + 1} of at most {max_requeues})"


def _patient_until(environment: Mapping[str, str]) -> float:
    """By the clock of ``time.time``. Newer Slurms tell a job when it must end (22.05 does not)."""
    end = environment.get("SLURM_JOB_END_TIME", "")
    longest = time.time() + LONGEST_PATIENCE_S
    return min(longest, float(end)) if end.isdigit() else longest


def _state(job: str, until: float) -> tuple[str | None, str]:
    """The job's state, or None and why Slurm did not tell it until then."""
    pause, marker = FIRST_PAUSE_S, "JobState="
    while True:
        text, failure = _scontrol("--oneliner", "show", "job", job)
        if marker in text:  # the last one: a job's name comes earlier in the line, and may hold anything
            state = text.rsplit(marker, 1)[1]
            return "TIMEOUT" if state.startswith(_TIME_IS_OVER) else state.split()[0], ""
        if _FORGOTTEN in failure:
            return "unknown to Slurm", ""
        if time.time() + pause > until:
            return None, failure or "an empty answer"
        print(f"vivace: Slurm does not answer ({failure}); asking again in {pause:g} s", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _scontrol(*words: str) -> tuple[str, str]:
    """What it prints, and what went wrong ('' when nothing did)."""
    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=_SCONTROL_S)
    except subprocess.TimeoutExpired:
        return "", f"no answer in {_SCONTROL_S:g} s"
    except OSError as error:
        return "", str(error)
    return done.stdout, "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
