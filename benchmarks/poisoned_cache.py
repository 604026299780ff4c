"""A compile cache that holds another number format: what runs without vivace, and what runs under it?

    python benchmarks/poisoned_cache.py                # needs a GPU; torch 2.11 has the fault, 2.13 does not
    python benchmarks/poisoned_cache.py --device cpu --small

torch before pull request 181564 leaves the autocast dtype out of the key of its compile cache. A job compiled under
float32 autocast fills a fresh cache folder; the same job under bfloat16 autocast then loads the float32 code. The last
row measures it with vivace, on the same folder. Appends to results/poisoned_cache.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import Table, hardware, say
from sides import ROOT

_HERE = Path(__file__).resolve()
FIELDS = ("side", "step_ms", "logits", "mfu", "contradictions", "seconds", "hardware", "torch")
_STEPS, _LATE = 40, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model")
    parser.add_argument("--output", type=Path, default=_HERE.parent / "results" / "poisoned_cache.csv")
    parser.add_argument("--train", choices=("float32", "bfloat16"), help="run the job itself (internal)")
    parser.add_argument("--steps", type=int, default=_STEPS)
    args = parser.parse_args()
    if args.train:
        train(args)
        return
    table = Table(args.output, FIELDS, hardware(args.device))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
        for dtype in ("float32", "bfloat16"):
            began = time.monotonic()
            told = json.loads(run(job(args, dtype, args.steps), environment))
            table.add(side=f"{dtype} without vivace", **told, seconds=time.monotonic() - began)
        began = time.monotonic()
        measure = [sys.executable, "-m", "vivace", "measure", "--json", "-q", "--steps", "15", "-o", folder, "--"]
        record = json.loads(run([*measure, *job(args, "bfloat16", 400)], environment))
        table.add(
            side="bfloat16 under vivace", step_ms=record["step_ms"]["median"], mfu=record["mfu"],
            contradictions=len(record["contradictions"]), seconds=time.monotonic() - began,
        )  # fmt: skip


def job(args: argparse.Namespace, dtype: str, steps: int) -> list[str]:
    small = ["--small"] if args.small else []
    return [sys.executable, str(_HERE), "--device", args.device, *small, "--train", dtype, "--steps", str(steps)]


def run(command: list[str], environment: dict[str, str]) -> str:
    say(f"  {' '.join(command[1:])}")
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return done.stdout


def train(args: argparse.Namespace) -> None:
    """A small GPT, compiled as a whole, under autocast to one dtype; prints one line of JSON."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    width, layers, batch, length, words = (64, 2, 2, 32, 64) if args.small else (1024, 4, 16, 1024, 1024)
    block = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(words, width), body, nn.Linear(width, words)).to(args.device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = torch.randint(0, words, (batch, length), device=args.device)
    times_ms = []
    for _ in range(args.steps):
        began = time.perf_counter()
        with torch.amp.autocast(args.device, dtype=getattr(torch, args.train)):
            logits = compiled(text)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), text.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.device == "cuda":
            torch.cuda.synchronize()
        times_ms.append(1e3 * (time.perf_counter() - began))
    print(json.dumps({"step_ms": statistics.median(times_ms[-_LATE:]), "logits": str(logits.dtype)}))


if __name__ == "__main__":
    main()
