"""How much CPU time and memory Linux control groups (Slurm, containers) leave to this process.

Reads ``/proc/self/cgroup`` and files under ``/sys/fs/cgroup``, versions 1 and 2; called by
``hardware.machine``. The parsers take text and the walk takes the folder, so that both can be tested with
made-up ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Limits",
    "limits_of",
    "own_limits",
    "parse_cfs_quota",
    "parse_cpu_max",
    "parse_memberships",
    "parse_memory_limit",
]

# Version 1 writes "no limit" as the largest multiple of the page size in 63 bits; no machine has an exabyte.
UNLIMITED_BYTES = 2**60
V2 = ""


@dataclass(frozen=True)
class Limits:
    """None: no limit."""

    cpu_cores: float | None = None
    memory_bytes: int | None = None


def own_limits() -> Limits:
    """The limits of this process; none where there are no control groups (macOS)."""
    membership = _text(Path("/proc/self/cgroup"))
    return Limits() if membership is None else limits_of(membership, Path("/sys/fs/cgroup"))


def limits_of(membership: str, root: Path) -> Limits:
    """The tightest limits from the process's groups up to the root: a parent's limit binds its children."""
    paths = parse_memberships(membership)
    cpu: list[float | None] = []
    memory: list[int | None] = []
    for group in _ancestors(root, paths.get(V2)):
        cpu.append(parse_cpu_max(_text(group / "cpu.max")))
        memory.append(parse_memory_limit(_text(group / "memory.max")))
    for group in _ancestors(_v1_mount(root, "cpu", "cpu,cpuacct", "cpuacct,cpu"), paths.get("cpu")):
        cpu.append(parse_cfs_quota(_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")))
    for group in _ancestors(_v1_mount(root, "memory"), paths.get("memory")):
        memory.append(parse_memory_limit(_text(group / "memory.limit_in_bytes")))
    return Limits(
        min((cores for cores in cpu if cores is not None), default=None),
        min((limit for limit in memory if limit is not None), default=None),
    )


def parse_memberships(text: str) -> dict[str, str]:
    """``/proc/self/cgroup`` as controller → path; the version 2 group is under the empty name.

    >>> parse_memberships("4:cpu,cpuacct:/slurm/job_7\\n0::/user.slice")
    {'cpu': '/slurm/job_7', 'cpuacct': '/slurm/job_7', '': '/user.slice'}
    """
    paths = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            paths.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return paths


def parse_cpu_max(text: str | None) -> float | None:
    """Version 2's ``cpu.max``: quota and period in microseconds.

    >>> parse_cpu_max("150000 100000"), parse_cpu_max("max 100000")
    (1.5, None)
    """
    words = (text or "").split()
    return parse_cfs_quota(words[0], words[1]) if len(words) == 2 else None


def parse_cfs_quota(quota_us: str | None, period_us: str | None) -> float | None:
    """Version 1's quota and period; a quota of -1 is no limit."""
    quota, period = _whole_number(quota_us), _whole_number(period_us)
    return quota / period if quota is not None and period is not None and quota > 0 and period > 0 else None


def parse_memory_limit(text: str | None) -> int | None:
    """``memory.max`` or ``memory.limit_in_bytes``; ``max`` and the huge number of version 1 are no limit."""
    limit = _whole_number(text)
    return limit if limit is not None and 0 < limit < UNLIMITED_BYTES else None


def _whole_number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _v1_mount(root: Path, *names: str) -> Path:
    # Distributions mount the cpu controller alone or with cpuacct.
    return next((root / name for name in names if (root / name).is_dir()), root / names[0])


def _ancestors(mount: Path, path: str | None) -> Iterator[Path]:
    """The group and its parents. In a container it may be the host's path: readers skip what is not there."""
    if path is None:
        return
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
