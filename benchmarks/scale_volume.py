"""What ranks exchange, against theory, and whether anything is gathered: three common scripts, unedited, on CPU.

    python benchmarks/scale_volume.py [--ranks 2 3]

Writes ``results/scale_volume.csv``. Payload: the bytes that a rank hands to collectives in a step, after the first five
(in which splits are proved), on rank 0. In theory ddp hands over its gradients once; a ring sends 2(N-1)/N of that.
zero1 hands over the values of its share as well (1/N in the mean of the ranks; whole parameters make shares uneven).
fsdp hands over its rows of the parameters twice, forward and backward, and its gradients once. What is more than that
is losses, statistics of batch norm, agreements, and the proofs of the split at steps 8 and 16.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import sys
import tempfile
from pathlib import Path

from scale_equality import _import_once, run

RESULTS = Path(__file__).resolve().parent / "results" / "scale_volume.csv"
HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
"""
LOOP = """
for x, y in DataLoader(TensorDataset(inputs, labels), 8, shuffle=True):
    loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
SCRIPTS = {
    "cnn": """
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 64, 3, 2), nn.BatchNorm2d(64), nn.ReLU(),
    nn.Conv2d(64, 128, 3, 2), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
inputs, labels = torch.randn(240, 3, 12, 12), torch.randint(0, 10, (240,))
""",
    "transformer": """
layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
model = nn.Sequential(nn.Embedding(50, 64), nn.TransformerEncoder(layer, 3), nn.Linear(64, 50))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
inputs, labels = torch.randint(0, 50, (240, 10)), torch.randint(0, 50, (240, 10))
""",
    "mlp": """
layers = [nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
model = nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
inputs, labels = torch.randn(240, 64), torch.randint(0, 10, (240,))
""",
}


def theory(mode: str, ranks: int) -> float:
    """Payload of a step, in gradients."""
    return {"ddp": 1.0, "zero1": 1.0 + 1 / ranks, "fsdp": 1.0 + 2 / ranks}[mode]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3])
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        fresh = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **fresh})
    _import_once()
    rows = []
    for (name, text), mode, ranks in itertools.product(SCRIPTS.items(), ("ddp", "zero1", "fsdp"), asked.ranks):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / f"{name}.py"
            script.write_text(HEAD + text + LOOP)
            ran = run(script, ranks, mode, Path(folder))
        assert ran.code == 0, ran.errors
        report = ran.report
        payload = report["bytes_sent"] / report["steps"]
        rows.append(
            {
                "script": name,
                "mode": mode,
                "ranks": ranks,
                "steps": report["steps"],
                "gradient_bytes": report["gradient_bytes"],
                "payload_bytes_per_step": round(payload),
                "payload_over_gradients": f"{payload / report['gradient_bytes']:.3f}",
                "theory": f"{theory(mode, ranks):.3f}",
                "gathers": sum(each["calls"] for each in report["gathered"]),
            }
        )
        print(*rows[-1].values(), sep="  ", flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
