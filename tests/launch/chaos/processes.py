"""The processes of a job on the emulated nodes, by what they do in it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from launch.slurm_cluster import SlurmCluster

__all__ = ["Role", "processes"]


class Role(Enum):
    SCRIPT = "the batch script"
    SRUN = "srun"
    TORCHRUN = "torchrun"
    RUN = "vivace run"
    """One of them for each rank of a split training."""
    RANK = "a rank"


def processes(cluster: SlurmCluster, job: str) -> dict[Role, list[int]]:
    """In order of their ids: a process comes before those that it forked."""
    found: dict[Role, list[int]] = {role: [] for role in Role}
    marks = {f"SLURM_CONF={cluster.root}/etc/slurm.conf".encode(), f"SLURM_JOB_ID={job}".encode()}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if marks <= set((folder / "environ").read_bytes().split(b"\0")):
                role = _role((folder / "cmdline").read_bytes().decode(errors="replace").split("\0"))
                if role is not None:
                    found[role].append(int(folder.name))
        except OSError:
            continue
    return {role: sorted(ids) for role, ids in found.items()}


def _role(words: list[str]) -> Role | None:
    program = Path(words[0]).name
    if program == "srun":
        return Role.SRUN
    if program == "bash" and any("slurm_script" in word for word in words):
        return Role.SCRIPT
    if program.startswith("python"):
        if "torch.distributed.run" in words:
            return Role.TORCHRUN
        if words[1:4] == ["-m", "vivace", "run"]:
            return Role.RUN
        if words[1:3] == ["-m", "vivace.scale.launcher"]:
            return None
        if any(word.endswith(("preemptible.py", "split.py")) for word in words):
            return Role.RANK
    return None
