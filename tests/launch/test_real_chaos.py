"""A minute of ``benchmarks/chaos_slurm.py``: faults in jobs on a real Slurm, judged by the same laws."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from launch.chaos.faults import FAULTS
from launch.chaos.site import Site
from launch.chaos.training import Launcher, Shape
from launch.chaos.trial import Hit, Plan, Planned, run_trial
from launch.slurm_cluster import SlurmCluster

# Once each: a warning, a crash, a signal to the script, to torchrun and to one of several ranks, a silent controller.
TRIALS = {
    Shape(Launcher.PLAIN, 1): {5: "SIGKILL to a rank", 20: "the controller killed for a while, and a warning"},
    Shape(Launcher.SRUN, 2): {5: "SIGUSR2 to a rank", 20: "SIGTERM to the batch script"},
    Shape(Launcher.TORCHRUN, 1): {5: "SIGUSR1 to torchrun", 20: "SIGUSR1 to the batch script"},
}
OPTIONS = ("--max-requeues=20", "--retry-crash=5", "--time=30:00")


def plan_of(shape: Shape, faults: dict[int, str]) -> Plan:
    named = {fault.name: fault for fault in FAULTS}
    planned = tuple(Planned(named[name], step) for step, name in faults.items())
    return Plan(shape.launcher.value, shape, planned, OPTIONS, step_s=0.25, seed=0)


def test_jobs_survive_and_read_what_they_are(slurm: SlurmCluster, tmp_path: Path):
    folders = [tmp_path / shape.launcher.value for shape in TRIALS]
    for folder in folders:
        folder.mkdir()
    site = Site(slurm, folders, real_disks=False)

    def trial(disk: int) -> list[Hit]:
        shape, faults = list(TRIALS.items())[disk]
        return list(run_trial(site, disk, plan_of(shape, faults), reference=None))

    with ThreadPoolExecutor(len(TRIALS)) as pool:
        hits = [hit for found in pool.map(trial, range(len(TRIALS))) for hit in found]
    assert [(hit.fault, hit.verdict) for hit in hits if hit.verdict != "holds"] == []
    assert len(hits) > len(TRIALS)  # on a very busy machine, a job may end before it is looked at again
