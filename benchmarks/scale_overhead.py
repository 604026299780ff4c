"""What splitting costs where there is nothing to split: ``vivace run --ranks 1 --with ddp`` beside the script alone.

    python benchmarks/scale_overhead.py --device cpu
    python benchmarks/scale_overhead.py --device cuda --models resnet50 gpt2

One rank has all of vivace's machinery in its process: batches that look whole, planned forwards, gradients that are
looked at, drift checks; only the exchange itself is missing. Pairs of runs alternate; a run prints the time of each
step after its warm-up, and its figure is their median. The ratio is the median over pairs with its 95 % bootstrap
interval. Losses of both must be the same to the bit. Appends to ``results/scale_overhead.csv``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "scale_overhead.csv"
SIZES = {  # batch, and the width of an image or the length of a text
    ("cpu", "resnet50"): (4, 64),
    ("cpu", "gpt2"): (2, 64),
    ("cuda", "resnet50"): (256, 224),
    ("cuda", "gpt2"): (16, 1024),
}
SCRIPT = """
import json, statistics, sys, time
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

name, device, batch, size, warm_up, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
torch.manual_seed(0)
if name == "resnet50":
    from vivace.train.models.resnet import resnet50
    net, data = resnet50(), TensorDataset(torch.randn(2 * batch, 3, size, size), torch.randint(0, 1000, (2 * batch,)))
else:
    from vivace.records.transformer import TransformerSizes
    from vivace.train.models.gpt import GPT
    sizes = TransformerSizes(layers=12, hidden=768, heads=12, vocab=50257, biases=True, positions="learned")
    net, tokens = GPT(sizes, size), torch.randint(0, 50257, (2 * batch, size + 1))
    net.output.weight = net.embedding.weight  # 124 M parameters
    net.set_positions(torch.arange(size, device=device))
    data = TensorDataset(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
net = net.to(device)
optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
loader = DataLoader(data, batch, shuffle=True)
times, losses, done = [], [], 0
while done < warm_up + steps:
    for x, y in loader:
        began = time.perf_counter()
        x, y = x.to(device), y.to(device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = net(x)
            loss = F.cross_entropy(out.flatten(0, -2) if out.dim() == 3 else out, y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())  # waits for the GPU, on both sides
        if done >= warm_up:
            times.append(1e3 * (time.perf_counter() - began))
        done += 1
        if done == warm_up + steps:
            break
print(json.dumps({"step_ms": statistics.median(times), "losses": losses}))
"""


def run(model: str, asked: argparse.Namespace, ranks: bool, folder: Path) -> tuple[float, list[float]]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    batch, size = SIZES[asked.device, model]
    command = [
        sys.executable,
        str(script),
        model,
        asked.device,
        str(batch),
        str(size),
        str(asked.warmup),
        str(asked.steps),
    ]
    if ranks:
        command = [sys.executable, "-m", "vivace", "run", "--ranks", "1", "--with", "ddp", "--", *command]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    return seen["step_ms"], seen["losses"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", nargs="+", choices=("resnet50", "gpt2"), default=["resnet50", "gpt2"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40)
    asked = parser.parse_args()
    for model in asked.models:
        ratios, alone, same = [], [], True
        for pair in range(asked.pairs):
            figures: dict[bool, tuple[float, list[float]]] = {}
            for ranks in (False, True) if pair % 2 == 0 else (True, False):
                with tempfile.TemporaryDirectory() as folder:
                    figures[ranks] = run(model, asked, ranks, Path(folder))
            ratios.append(figures[True][0] / figures[False][0])
            alone.append(figures[False][0])
            same = same and figures[True][1] == figures[False][1]
            print(f"{model} pair {pair}: {figures[False][0]:.2f} ms alone, ratio {ratios[-1]:.4f}", flush=True)
        low, high = bootstrap(ratios)
        batch, size = SIZES[asked.device, model]
        row = {
            "model": model, "device": asked.device, "batch": batch, "size": size,
            "step_ms_alone": round(statistics.median(alone), 2), "ratio_median": round(statistics.median(ratios), 4),
            "ratio_low": round(low, 4), "ratio_high": round(high, 4), "pairs": asked.pairs, "steps": asked.steps,
            "same_losses": same, "load": round(os.getloadavg()[0], 1), "hardware": hardware(asked.device),
        }  # fmt: skip
        print(row)
        write(row)


def bootstrap(values: list[float], rounds: int = 2000) -> tuple[float, float]:
    """95 % interval of the median."""
    drawn = random.Random(0)
    medians = sorted(statistics.median(drawn.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def hardware(device: str) -> str:
    if device == "cpu":
        return f"{os.cpu_count()} CPU cores"
    import torch

    return torch.cuda.get_device_name()


def write(row: dict[str, object]) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, row.keys(), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
