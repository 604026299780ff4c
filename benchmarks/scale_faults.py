"""What happens when one rank of a split training is killed, stopped, or raises: in each part of a step.

    python benchmarks/scale_faults.py [--ranks 2] [--only stop]

Writes ``results/scale_faults.csv``: after how many seconds the whole job had ended, its exit code, and the sentence.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOW = ("kill", "stop", "raise")
WHERE = ("forward", "backward", "loader", "worker", "save")
SCRIPT = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

how, where = sys.argv[1:3]
rank, steps = os.environ["VIVACE_RANK"], 0


def fault(here):
    if here != where or rank != "1" or steps < 3:
        return
    print("planted at", time.time(), file=sys.stderr, flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    raise ValueError(f"planted in the {here}")


class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        fault("backward")
        return gradient


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 32), torch.nn.Linear(32, 1)

    def forward(self, x):
        fault("forward")
        return self.second(Bad.apply(self.first(x)))


class Data(Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        fault("loader")
        if index > 200:
            globals()["steps"] = 10  # a worker has its own count
            fault("worker")
        return torch.full((8,), float(index))


class State(dict):
    def __reduce__(self):
        fault("save")
        return dict, ()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 1e-9)
for x in DataLoader(Data(), 8, num_workers=1 if where == "worker" else 0):
    net(x).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.save({"net": net.state_dict(), "more": State()}, "saved.pt")
    steps += 1
"""


def fail(how: str, where: str, ranks: int, folder: Path) -> dict[str, object]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "vivace", "run", "--ranks", str(ranks), "--with", "ddp", "--no-prove", "--"]
    command += [sys.executable, str(script), how, where]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    ended = time.time()
    (log,) = folder.glob("vivace-runs/*/rank-1.log")
    planted = [line for line in log.read_text().splitlines() if line.startswith("planted at")]
    seconds = ended - float(planted[0].split()[2])
    said = [line for line in done.stderr.splitlines() if line.startswith("vivace: rank")]
    sentence = (said or ["nothing was said"])[-1].partition("; its output")[0]
    return {
        "how": how, "where": where, "ranks": ranks, "ended_after_s": round(seconds, 1), "exit_code": done.returncode,
        "named_rank_1": "rank 1" in sentence, "said": sentence,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    rows = []
    for how, where in itertools.product(HOW, WHERE):
        if asked.only and asked.only not in (how, where):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append(fail(how, where, asked.ranks, Path(folder)))
        print(*rows[-1].values(), sep="  ", flush=True)
    if not asked.only:
        with (ROOT / "benchmarks" / "results" / "scale_faults.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
