"""What ``vivace run`` adds to the start of a training: the same short script, plain and with a practice, in turn.

    python benchmarks/start_up.py --runs 9 --label now
    python benchmarks/start_up.py --runs 9 --label before --checkout ../an-older-checkout

A pair is one run of each, in alternating order. The figure is the median over pairs of the difference in wall time,
with its 10 and 90 % quantiles, and the same for the CPU time of all processes, which a busy machine disturbs less. CPU
time counts twice what runs beside the import of torch (the record of the run). ``added_of_fastest_s`` compares the
fastest run of each kind: what others take from a busy machine is least there. Appends to results/start_up.csv.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import Table, hardware

HERE = Path(__file__).parent
FIELDS = (
    "label", "practice", "pairs", "plain_s", "with_vivace_s", "added_s", "added_s_10", "added_s_90",
    "added_of_fastest_s", "added_cpu_s", "added_cpu_s_10", "added_cpu_s_90", "load_average", "hardware", "torch",
)  # fmt: skip
SCRIPT = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="pairs of runs")
    parser.add_argument("--practice", default="fused_optimizer")
    parser.add_argument("--label", default="now")
    parser.add_argument("--checkout", type=Path, default=HERE.parent, help="the vivace to start")
    options = parser.parse_args()
    table = Table(HERE / "results" / "start_up.csv", FIELDS, hardware("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(SCRIPT)
        plain = [sys.executable, str(script)]
        with_vivace = [sys.executable, "-m", "vivace", "run", "--with", options.practice, "--", *plain]
        table.add(
            label=options.label,
            practice=options.practice,
            **compared(plain, with_vivace, options.runs, folder, options.checkout),
        )


def compared(plain: list[str], with_vivace: list[str], runs: int, folder: str, checkout: Path) -> dict[str, float]:
    load = os.getloadavg()[0]
    pairs = []
    for number in range(-1, runs):  # the first one fills the caches of the disk, and does not count
        order = (plain, with_vivace) if number % 2 else (with_vivace, plain)
        times = {len(words): timed(words, folder, checkout) for words in order}
        if number >= 0:
            pairs.append((times[len(plain)], times[len(with_vivace)]))
    added = [after[0] - before[0] for before, after in pairs]
    tenths = statistics.quantiles(added, n=10, method="inclusive")
    added_cpu = [after[1] - before[1] for before, after in pairs]
    cpu_tenths = statistics.quantiles(added_cpu, n=10, method="inclusive")
    return {
        "pairs": runs,
        "plain_s": statistics.median(before[0] for before, _after in pairs),
        "with_vivace_s": statistics.median(after[0] for _before, after in pairs),
        "added_s": statistics.median(added),
        "added_s_10": tenths[0],
        "added_s_90": tenths[-1],
        "added_of_fastest_s": min(after[0] for _, after in pairs) - min(before[0] for before, _ in pairs),
        "added_cpu_s": statistics.median(added_cpu),
        "added_cpu_s_10": cpu_tenths[0],
        "added_cpu_s_90": cpu_tenths[-1],
        "load_average": load,
    }


def timed(words: list[str], folder: str, checkout: Path) -> tuple[float, float]:
    """Wall and CPU seconds of the command and all that it starts."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
