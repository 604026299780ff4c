"""Gradients exchanged during the backward pass, or after it: exposed communication of two ranks, side by side.

    python benchmarks/scale_overlap.py [--ranks 2] [--rounds 5] [--device cuda]

Each round measures the same script twice, once with each way, in alternating order; ``VIVACE_SCALE_OVERLAP=0`` switches
the earlier exchange off. Losses of the two must be the same to the bit (they are with two ranks; a ring of more adds up
in another order). Writes ``results/scale_overlap.csv``: one row a run.

On two CPU cores the messages of gloo take the time of the very cores that compute: little can be hidden there.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "scale_overlap.csv"
SCRIPT = """
import sys
import torch
from torch import nn

device, width, layers, batch = sys.argv[1], *map(int, sys.argv[2:5])
torch.manual_seed(0)
net = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())], nn.Linear(width, 10))
net.to(device)
optimizer = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)
x, y = torch.randn(batch, width, device=device), torch.randint(0, 10, (batch,), device=device)
for step in range(10_000):
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def measure(overlap: bool, asked: argparse.Namespace, folder: Path) -> dict[str, object]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "vivace", "measure", "--ranks", str(asked.ranks), "--json", "--no-profile"]
    command += ["--no-flops", "--steps", str(asked.steps), "--warmup", "10", "--", sys.executable, str(script)]
    command += [asked.device, str(asked.width), str(asked.layers), str(asked.batch)]
    environment = {**os.environ, "VIVACE_SCALE_OVERLAP": "1" if overlap else "0"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, env=environment)
    record = json.loads(done.stdout)
    assert record["status"] == "complete", (record["reason"], done.stderr)
    communication = record["phases_ms"]["communication"]
    return {
        "overlap": overlap, "ranks": asked.ranks, "device": asked.device,
        "gradient_mib": round(record["scale"]["gradient_mib"], 1),
        "sent_mib_per_step": round(record["scale"]["sent_mib_per_step"], 1),
        "buckets_sent_early": record["scale"]["sent_early"],
        "step_ms_mean": round(record["step_ms"]["mean"], 2), "step_ms_median": round(record["step_ms"]["median"], 2),
        "exposed_ms_mean": round(communication["mean"], 2), "exposed_ms_median": round(communication["median"], 2),
        "waiting_ms": round(record["waiting_for_ranks_ms"], 2), "steps": record["steps"],
        "load": round(os.getloadavg()[0], 1), "losses": json.dumps(record["losses"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked = parser.parse_args()
    rows: list[dict[str, object]] = []
    for number in range(asked.rounds):
        losses = {}
        for overlap in (False, True) if number % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                row = measure(overlap, asked, Path(folder))
            losses[overlap] = row.pop("losses")
            rows.append({"round": number, **row, "same_losses": ""})
            print(*rows[-1].values(), sep="  ", flush=True)
        rows[-1]["same_losses"] = rows[-2]["same_losses"] = losses[True] == losses[False]
    for overlap in (False, True):
        shares = [
            float(str(row["exposed_ms_mean"])) / float(str(row["step_ms_mean"]))
            for row in rows
            if row["overlap"] is overlap
        ]
        print(
            f"overlap {overlap}: exposed share of a step, median of {len(shares)} runs: {statistics.median(shares):.3f}"
        )
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
