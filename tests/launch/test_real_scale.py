"""An unedited script over two nodes of two ranks: ``vivace submit --with ddp`` on a real Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launch.conftest import ROOT, Bench

SCRIPT = ROOT / "tests" / "scale" / "zoo" / "fgsm.py"


def losses(text: str) -> list[float]:
    return [float(word) for line in text.splitlines() if line.startswith("loss") for word in line.split()[1:]]


def test_two_nodes_of_two_ranks_print_the_losses_of_one_process_once(bench_with_names: Bench, tmp_path: Path):
    bench = bench_with_names
    alone = losses(subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True).stdout)
    options = ("--gpus", "8", "--gpus-per-task", "2", "--with", "ddp", "--name", "split")
    record = bench.submit(*options, command=[sys.executable, str(SCRIPT)])
    assert bench.end(record) == "COMPLETED", bench.err(record)
    together = losses(bench.out(record))
    assert len(together) == len(alone)
    assert max(abs(a - b) / abs(a) for a, b in zip(alone, together, strict=True)) < 1e-12
    assert "ddp applied: Sequential split over 4 ranks" in bench.err(record)
