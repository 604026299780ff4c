"""A real Slurm a test worker, started when the first test asks for it; without Slurm those tests skip and say so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from launch.slurm_cluster import SlurmCluster, missing_programs

ROOT = Path(__file__).parents[2]
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")

# The emulated nodes as a site's own catalogue file would describe them.
CATALOGUE = """
[cluster.testbed]
name = "Two emulated nodes"
gpu = "v100-sxm2-32gb"
gpus_per_node = 4
cores_per_gpu = 2
scheduler = "slurm"
partition = "gpu_p13"
constraint = "v100-32g"
slurm_options = ["--hint=nomultithread"]
sources = ["tests/launch/slurm_cluster.py"]
"""


class Bench:
    """vivace in an empty folder, with a cluster around it."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        (folder / "catalogue.toml").write_text(CATALOGUE)

    @property
    def env(self) -> dict[str, str]:
        return {
            **self.cluster.env,
            "VIVACE_CATALOGUE": str(self.folder / "catalogue.toml"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "250",
        }

    def vivace(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vivace", *words],
            env={**self.env, **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def submit(self, *options: str, command: Sequence[str]) -> dict[str, Any]:
        """``vivace submit --json`` on the emulated cluster; the record."""
        done = self.vivace("submit", "--cluster", "testbed", "--time", "10:00", "--json", *options, "--", *command)
        assert done.returncode == 0, done.stderr
        (record,) = json.loads(done.stdout)
        return record

    def end(self, record: dict[str, Any], timeout_s: float = 200) -> str:
        from launch.slurm_cluster import FINAL

        return self.cluster.wait_state(record["job_id"], FINAL, timeout_s)

    def out(self, record: dict[str, Any]) -> str:
        return Path(record["stdout"].replace("%j", record["job_id"])).read_text()

    def err(self, record: dict[str, Any]) -> str:
        return Path(record["stderr"].replace("%j", record["job_id"])).read_text()


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
