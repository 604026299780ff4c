"""vivace in a folder of its own, with an emulated Slurm around it. For tests and for ``benchmarks/chaos_slurm.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.slurm_cluster import FINAL, SlurmCluster

ROOT = Path(__file__).parents[2]

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
            timeout=600,
        )

    def submit(self, *options: str, command: Sequence[str]) -> dict[str, Any]:
        """``vivace submit --json`` on the emulated cluster; the record."""
        done = self.vivace("submit", "--cluster", "testbed", "--time", "10:00", "--json", *options, "--", *command)
        assert done.returncode == 0, done.stderr
        (record,) = json.loads(done.stdout)
        return record

    def end(self, record: dict[str, Any], timeout_s: float = 600) -> str:
        return self.cluster.wait_state(record["job_id"], FINAL, timeout_s)

    def out(self, record: dict[str, Any]) -> str:
        return Path(record["stdout"].replace("%j", record["job_id"])).read_text()

    def err(self, record: dict[str, Any]) -> str:
        return Path(record["stderr"].replace("%j", record["job_id"])).read_text()
