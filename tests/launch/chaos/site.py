"""The emulated cluster that the faults happen to, and its small disks: one for each job that runs at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from launch.bench import Bench
from launch.chaos.waiting import wait
from launch.slurm_cluster import SlurmCluster

__all__ = ["Event", "Site", "chaos_site"]

DISK_MIB = 16
# Room for ranks on a busy machine: to save after SIGTERM, and for slurmd to answer its controller.
SETTINGS = {"KillWait": 60, "GraceTime": 60, "SlurmdTimeout": 20}


@dataclass
class Event:
    """Something that happens to the whole cluster: other jobs feel it too."""

    who: str
    began_s: float
    ended_s: float | None = None


@dataclass
class Site:
    cluster: SlurmCluster
    disks: list[Path]
    """Folders for jobs. ``real_disks``: each a file system of its own, that can be full."""
    real_disks: bool
    events: list[Event] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def bench(self, disk: int) -> Bench:
        folder = self.disks[disk]
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        return Bench(self.cluster, folder)

    @contextmanager
    def event(self, who: str) -> Iterator[None]:
        """One at a time."""
        with self.lock:
            event = Event(who, time.monotonic())
            self.events.append(event)
            try:
                yield
            finally:
                event.ended_s = time.monotonic()

    def others_since(self, who: str, since_s: float) -> bool:
        """Did anything happen to the whole cluster since then, by another's hand?"""
        return any(event.who != who and (event.ended_s or since_s) >= since_s for event in self.events)

    def scontrol(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.run("scontrol", *words, check=False)

    def facts(self, job: str) -> dict[str, str]:
        """Slurm's own words about a job; empty when it does not answer."""
        try:
            text = self.scontrol("--oneliner", "show", "job", job).stdout
        except subprocess.TimeoutExpired:
            return {}
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self, job: str) -> str:
        return self.facts(job).get("JobState", "")

    def node_of(self, job: str) -> int:
        """The first one of the job; 0 when it has none now."""
        answer = self.scontrol("show", "hostnames", self.facts(job).get("NodeList", "")).stdout.split()
        name = answer[0] if answer else ""
        return int(name[4:]) if name.startswith("node") and name[4:].isdigit() else 0

    def node_state(self, number: int) -> str:
        text = self.scontrol("--oneliner", "show", "node", f"node{number}").stdout
        return text.split(" State=")[1].split()[0] if " State=" in text else ""

    def wait_controller(self) -> None:
        wait("slurmctld", lambda: "is UP" in self.scontrol("ping").stdout)


@contextmanager
def chaos_site(disks: int, nodes: int = 2) -> Iterator[Site]:
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    folders = [root / f"disk{number}" for number in range(disks)]
    for folder in folders:
        folder.mkdir()
    mounted = [folder for folder in folders if _mount(folder)]  # before the nodes start, whose mounts are their own
    try:
        with SlurmCluster(nodes=nodes, settings=SETTINGS) as cluster:
            yield Site(cluster, folders, len(mounted) == disks)
    finally:
        for folder in mounted:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)
        with contextlib.suppress(OSError):
            shutil.rmtree(root)


def _mount(folder: Path) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "chaos", str(folder)]
    return os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0
