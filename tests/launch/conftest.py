"""A real Slurm a test worker, started when the first test asks for it; without Slurm those tests skip and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launch.bench import ROOT, Bench
from launch.slurm_cluster import SlurmCluster, missing_programs

__all__ = ["ROOT", "Bench"]

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")


def _cluster(accounting: bool, *programs: str) -> Iterator[SlurmCluster]:
    if missing := missing_programs(*programs):
        pytest.skip(f"no real Slurm here: {', '.join(missing)} not found (tests/launch/install_slurm.sh installs it)")
    with SlurmCluster(accounting=accounting) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    yield from _cluster(False, *PROGRAMS)


@pytest.fixture(scope="session")
def slurm_with_accounts() -> Iterator[SlurmCluster]:
    yield from _cluster(True, *PROGRAMS, "slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")


@pytest.fixture
def bench(slurm: SlurmCluster, tmp_path: Path) -> Bench:
    return Bench(slurm, tmp_path)


@pytest.fixture
def bench_with_names(bench: Bench) -> Bench:
    """For ranks that must find node1: needs root's right to give each emulated node its own /etc/hosts."""
    if not bench.cluster.names_resolve:
        pytest.skip("the emulated nodes' names cannot be resolved: no right to make mount and UTS namespaces here")
    return bench


@pytest.fixture
def bench_with_accounts(slurm_with_accounts: SlurmCluster, tmp_path: Path) -> Bench:
    return Bench(slurm_with_accounts, tmp_path)
