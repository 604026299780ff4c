"""How busy are loader workers that compute, and workers that wait? The threshold in practices/engine/worker_counts.py.

    python benchmarks/worker_busy.py --runs 2

A small training waits for its loader, whose workers compute or sleep for 2 ms per sample. Each is measured alone and
beside two processes per core that only compute. Appends to results/worker_busy.csv: ``workers_busy`` is the share of
the time in which a worker ran or waited for a core, ``waits`` the share of a step that waits for data.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rows import Table, hardware

from vivace.records.measurement import Measurement

RESULTS = Path(__file__).parent / "results" / "worker_busy.csv"
FIELDS = ("work", "workers", "beside", "workers_busy", "waits", "samples_per_s", "load", "hardware", "torch")
SCRIPT = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        if sys.argv[1] == "sleeps":
            time.sleep(0.002)
        else:
            end = time.thread_time() + 0.002
            while time.thread_time() < end:
                pass
        return torch.ones(8)

if __name__ == "__main__":
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for rows in DataLoader(Slow(), 16, num_workers=int(sys.argv[2])):
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()
"""


@contextlib.contextmanager
def others(count: int) -> Iterator[None]:
    """Processes that only compute."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measured(work: str, workers: int, folder: Path) -> Measurement:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "vivace", "measure", "--json", "-q", "--steps", "30", "-o", str(folder / "runs")]
    done = subprocess.run(
        [*command, "--", sys.executable, str(script), work, str(workers)],
        check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return Measurement.from_json(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    table = Table(arguments.output, FIELDS, hardware("cpu"))
    cores = len(os.sched_getaffinity(0))
    for _ in range(arguments.runs):
        for work in ("computes", "sleeps"):
            for workers in (1, cores, 4 * cores):
                for beside in (0, 2 * cores):
                    with tempfile.TemporaryDirectory() as folder, others(beside):
                        record = measured(work, workers, Path(folder))
                    assert record.step_ms is not None
                    table.add(
                        work=work, workers=workers, beside=beside, workers_busy=record.workers_busy,
                        waits=record.phases_ms["loader"].mean / record.step_ms.mean,
                        samples_per_s=record.samples_per_s, load=os.getloadavg()[0],
                    )  # fmt: skip


if __name__ == "__main__":
    main()
