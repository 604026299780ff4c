"""R14: DDP exchanges gradients after each of four backward passes of a step; fixed: after the last one only."""

import contextlib
import tempfile
from pathlib import Path

import torch
from common import arguments
from torch import nn

PASSES = 4

if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high")
    store = Path(tempfile.mkdtemp()) / "store"
    backend = "nccl" if args.device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, init_method=f"file://{store}", rank=0, world_size=1)
    width, depth, batch_size = (128, 8, 4) if args.small else (2048, 24, 64)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(args.device))  # the defect
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    inputs = torch.randn(batch_size, width, device=args.device)
    for _ in range(args.steps):
        optimizer.zero_grad()
        for number in range(PASSES):
            with model.no_sync() if args.fixed and number < PASSES - 1 else contextlib.nullcontext():
                loss = (model(inputs) - inputs).square().mean() / PASSES
                loss.backward()
        optimizer.step()
