"""The user's jobs in the queue, by id, name or pattern; and cancelling them.

Asks ``squeue`` for JSON, and for plain text where it has none. ``cancel`` calls ``scancel``; nothing else is changed.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
import time
from collections.abc import Sequence

from vivace.errors import UserError
from vivace.launch.jobs import TEXT_FORMAT, JobInfo, from_json, from_text
from vivace.launch.slurm import ask, call

__all__ = ["cancel", "is_job_id", "matching", "my_jobs"]


def is_job_id(text: str) -> bool:
    """
    >>> is_job_id("17"), is_job_id("17_3"), is_job_id("train")
    (True, True, False)
    """
    return re.fullmatch(r"\d+(_(\d+|\[[\d,:%-]+\]))?", text) is not None


def my_jobs(name: str | None = None) -> list[JobInfo]:
    """Waiting and running jobs of this user; with ``name`` those of that id, name or pattern."""
    jobs = [job for job in _asked() if job.active]
    return jobs if name is None else matching(jobs, name)


def matching(jobs: Sequence[JobInfo], wanted: str) -> list[JobInfo]:
    """By id (an array's id means all its tasks), by name, or by a pattern with ``*`` and ``?``."""
    if is_job_id(wanted):
        return [job for job in jobs if job.job_id == wanted or job.job_id.partition("_")[0] == wanted]
    exact = [job for job in jobs if job.name == wanted]
    return exact or [job for job in jobs if fnmatch.fnmatchcase(job.name, wanted)]


def _asked() -> list[JobInfo]:
    answer = ask("squeue", "--me", "--json")
    if answer.code == 0:
        try:
            # Slurm 22.05 leaves its filters aside when it writes JSON: look at the user ourselves.
            me = _user_name()
            return [job for job in from_json(answer.out, time.time()) if job.user in (me, "")]
        except ValueError:
            pass  # without its JSON plugin or its controller, squeue exits with 0 too: the text will say why
    return from_text(call("squeue", "--me", "--noheader", f"--format={TEXT_FORMAT}").out)


def _user_name() -> str:
    """By the system, as Slurm sees us: $LOGNAME can say anything."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container without this user
        return str(os.getuid())


def cancel(wanted: Sequence[str]) -> list[str]:
    """Cancel by id, name or pattern; the ids that were cancelled. A ``UserError`` when nothing fits, before any is."""
    jobs = my_jobs()
    ids: list[str] = []
    for text in wanted:
        found = [job.job_id for job in matching(jobs, text)]
        if not found:
            raise UserError(f"no waiting or running job of yours is {text!r}", hint="vivace queue lists them")
        ids.extend(found)
    ids = list(dict.fromkeys(ids))
    # "17_[1-3%1]": scancel knows the tasks, not the limit on how many run at a time.
    call("scancel", *(re.sub(r"%\d+", "", job_id) for job_id in ids))
    return ids
