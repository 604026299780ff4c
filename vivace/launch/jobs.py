"""``JobInfo``: a job as Slurm shows it, from the JSON of squeue (22.05 and 24.11 differ), or from plain text.

Pure parsing of texts; ``queue`` and ``status`` get the texts.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.launch.words import seconds_of
from vivace.records.run import RunState

__all__ = [
    "PAUSED",
    "TEXT_FORMAT",
    "JobInfo",
    "from_json",
    "from_scontrol",
    "from_text",
    "plain_reason",
    "run_state",
]

# The name comes last: it may hold anything, the separator included.
TEXT_FORMAT = "%i|%T|%r|%M|%l|%D|%N|%S|%P|%q|%u|%j"

PAUSED = {"SUSPENDED", "STOPPED"}  # by an administrator or for another job; by a signal
_ACTIVE = {
    "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESIZING",
    "SIGNALING", "STAGE_OUT", *PAUSED,
}  # fmt: skip
_FLAGS = {
    "COMPLETING",
    "CONFIGURING",
    "REQUEUED",
    "RESIZING",
    "STAGE_OUT",
    "SIGNALING",
    "LAUNCH_FAILED",
    "POWER_UP_NODE",
}
_STATES: dict[str, RunState] = {
    "PENDING": "queued",
    "REQUEUED": "queued",
    "RUNNING": "running",
    "COMPLETING": "running",
    "CONFIGURING": "running",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "REQUEUE_HOLD": "queued",
    "SPECIAL_EXIT": "queued",
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "OUT_OF_MEMORY": "out-of-memory",
    "NODE_FAIL": "node-failure",
    "BOOT_FAIL": "node-failure",
    "FAILED": "failed",
    "PREEMPTED": "cancelled",
    "REVOKED": "cancelled",
}


@dataclass(frozen=True, kw_only=True)
class JobInfo:
    """``job_id`` is what a person types: ``17``, or ``17_3`` in an array. ``start`` is local time."""

    job_id: str
    name: str
    state: str
    reason: str = ""
    user: str = ""
    partition: str = ""
    qos: str = ""
    nodes: int = 0
    gpus: int | None = None
    node_list: str = ""
    run_s: int | None = None
    limit_s: int | None = None
    start: str | None = None
    restarts: int = 0
    exit_code: int | None = None
    signal: int | None = None
    stdout: str | None = None
    stderr: str | None = None

    @property
    def active(self) -> bool:
        return self.state in _ACTIVE

    def as_table(self) -> dict[str, Any]:
        return {**asdict(self), "reason_in_words": plain_reason(self.reason)}


def run_state(state: str) -> RunState:
    return _STATES.get(state.split()[0] if state else "", "unknown")


def plain_reason(reason: str) -> str:
    """
    >>> plain_reason("Dependency")
    'it waits for another job to end'
    """
    bare = re.split(r"[,:(]", reason.strip("()"))[0].strip()  # "RaisedSignal:9(Killed)"
    return _reasons().get(bare, bare)


@lru_cache(maxsize=1)
def _reasons() -> dict[str, str]:
    return tomllib.loads((Path(__file__).parent / "reasons.toml").read_text(encoding="utf-8"))


def from_json(text: str, now: float) -> list[JobInfo]:
    """All jobs of ``squeue --json``; ``ValueError`` when it is not that."""
    data = json.loads(text)
    if isinstance(data, dict) and data.get("errors"):
        raise ValueError("squeue could not ask; its list of jobs is empty all the same, and its exit code 0")
    if not isinstance(data, dict) or not isinstance(data.get("jobs"), list):
        raise ValueError("no list of jobs")
    return [_of_object(job, now) for job in data["jobs"]]


def _of_object(job: dict[str, Any], now: float) -> JobInfo:
    state, started = _state(job.get("job_state")), _number(job.get("start_time"))
    minutes = _number(job.get("time_limit"))
    code, number = _exit(job.get("exit_code"))
    ended = _number(job.get("end_time"))
    until = now if state in _ACTIVE or not ended else ended
    running = state not in ("PENDING", "REQUEUED")
    return JobInfo(
        job_id=_array_id(job),
        name=str(job.get("name") or ""),
        state=state,
        reason=str(job.get("state_reason") or "").replace("None", ""),
        user=str(job.get("user_name") or ""),
        partition=str(job.get("partition") or ""),
        qos=str(job.get("qos") or ""),
        nodes=_number(job.get("node_count")) or 0,
        gpus=_gpus(job.get("tres_alloc_str") or job.get("tres_req_str"), job.get("tres_per_node"), job),
        node_list=str(job.get("nodes") or ""),
        run_s=max(0, int(until - started)) if running and started else None,
        limit_s=None if minutes is None else minutes * 60,
        start=datetime.fromtimestamp(started).isoformat() if started else None,
        restarts=_number(job.get("restart_cnt")) or 0,
        exit_code=None if state in _ACTIVE else code,
        signal=None if state in _ACTIVE else number,
        stdout=job.get("standard_output") or None,
        stderr=job.get("standard_error") or None,
    )


def _gpus(total: Any, per_node: Any, job: dict[str, Any]) -> int | None:
    """Where the site counts GPUs, their number stands in ``total``; else what was asked for each node."""
    if match := re.search(r"gres/gpu=(\d+)", str(total or "")):
        return int(match[1])
    if match := re.search(r"gres[:/]gpu(?::[A-Za-z][\w.-]*)?[:=](\d+)", str(per_node or "")):
        return int(match[1]) * max(1, _number(job.get("node_count")) or 1)
    return None


def _number(value: Any) -> int | None:
    """22.05 writes 10, 24.11 {"set": true, "infinite": false, "number": 10}."""
    if isinstance(value, dict):
        return _number(value.get("number")) if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def _state(value: Any) -> str:
    """22.05 writes "RUNNING", 24.11 a list of the state and of flags."""
    words = value if isinstance(value, list) and value else str(value or "UNKNOWN").replace(",", " ").split()
    base = [word for word in words if word not in _FLAGS] or list(words)
    # A job that was told to end is still being cleaned up: for a reader it is not over yet.
    return "COMPLETING" if "COMPLETING" in words and base[0] == "RUNNING" else str(base[0])


def _exit(value: Any) -> tuple[int | None, int | None]:
    """(exit code, signal). 22.05 writes the wait status, 24.11 an object."""
    if isinstance(value, dict):
        signal = value.get("signal") or {}
        number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else None
        return _number(value.get("return_code")) or 0, number or None
    status = _number(value)
    return (None, None) if status is None else (status >> 8 & 0xFF, status & 0x7F or None)


def _array_id(job: dict[str, Any]) -> str:
    array, task = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    if array and job.get("array_task_string"):
        return f"{array}_[{job['array_task_string']}]"
    return f"{array}_{task}" if array and task is not None else str(_number(job.get("job_id")))


def from_text(text: str) -> list[JobInfo]:
    """The rows of ``squeue --noheader --format=TEXT_FORMAT``."""
    jobs = []
    for line in text.splitlines():
        words = line.split("|", 11)
        if len(words) == 12:
            job_id, state, reason, ran, limit, nodes, node_list, start, partition, qos, user, name = words
            jobs.append(
                JobInfo(
                    job_id=job_id.strip(),
                    name=name,
                    state=state,
                    reason="" if reason == "None" else reason,
                    user=user,
                    partition=partition,
                    qos="" if qos == "(null)" else qos,
                    nodes=int(nodes) if nodes.isdigit() else 0,
                    node_list=node_list,
                    run_s=_seconds(ran) if state != "PENDING" else None,
                    limit_s=_seconds(limit),
                    start=None if start in ("N/A", "Unknown", "") else start,
                )
            )
    return jobs


def from_scontrol(text: str) -> JobInfo:
    """One line of ``scontrol --oneliner show job``."""
    # The name may hold anything, also words that look like fields: it ends at the last "UserId=name(number)".
    match = re.search(r"JobId=(\d+) (.*?)JobName=(.*) (UserId=\S+\(\d+\) .*)", text, re.DOTALL)
    if match is None:
        raise ValueError("not a job of scontrol")
    facts: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)", f"{match[2]} {match[4]}"):
        facts.setdefault(key, value)
    array, task = facts.get("ArrayJobId"), facts.get("ArrayTaskId")
    code, _, number = facts.get("ExitCode", "").partition(":")
    state, reason = facts.get("JobState", "UNKNOWN"), facts.get("Reason", "")
    over = state not in _ACTIVE
    return JobInfo(
        job_id=match[1] if not (array and task) else f"{array}_{task}" if task.isdigit() else f"{array}_[{task}]",
        name=match[3],
        state=state,
        reason="" if reason == "None" else reason,
        user=facts.get("UserId", "").partition("(")[0],
        partition=facts.get("Partition", ""),
        qos=facts.get("QOS", "").replace("(null)", ""),
        nodes=int(nodes) if (nodes := facts.get("NumNodes", "0").partition("-")[0]).isdigit() else 0,
        node_list=facts.get("NodeList", "").replace("(null)", ""),
        run_s=_seconds(facts.get("RunTime", "")),
        limit_s=_seconds(facts.get("TimeLimit", "")),
        start=facts.get("StartTime") if facts.get("StartTime") not in ("Unknown", "N/A") else None,
        restarts=int(facts.get("Restarts", "0")),
        exit_code=int(code) if over and code.isdigit() else None,
        signal=int(number) or None if over and number.isdigit() else None,
        stdout=_path(text, "StdOut"),
        stderr=_path(text, "StdErr"),
    )


def _path(text: str, key: str) -> str | None:
    match = re.search(rf" {key}=(.*?)(?= [A-Z][A-Za-z]*=|\s*$)", text)
    return match[1] if match else None


def _seconds(text: str) -> int | None:
    try:
        return seconds_of(text)
    except UserError:  # "UNLIMITED", "INVALID", "0:00"
        return 0 if re.fullmatch(r"[0:]+", text or "-") else None
