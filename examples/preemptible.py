"""A training that survives time limits and preemption, and ends with the same losses as if nothing had happened.

    vivace submit --gpus 2 --time 20h -- python examples/preemptible.py --steps 100000

Three lines are for that (marked ①②③); the rest is any training. Runs on one process, under torchrun or under srun.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vivace import distributed
from vivace.preemption import Preemption, save_atomically


def batch(step: int, rank: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A function of step and rank: what a resumable loader must be. Fixed weights make it learnable."""
    random = torch.Generator().manual_seed(step * 1009 + rank)
    x = torch.randn(size, 16, generator=random)
    return x, (x.sum(dim=1, keepdim=True) > 0).float()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/preemptible.pt"))
    parser.add_argument("--step-seconds", type=float, default=0.0, help="Pretend that a step takes longer.")
    options = parser.parse_args()

    distributed.init_process_group()
    device, rank = distributed.device, distributed.rank
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    guard = Preemption()  # ①

    first = 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    print(f"rank {rank} of {distributed.world_size} on {distributed.hostname} begins at step {first}", flush=True)

    for step in range(first, options.steps):
        torch.manual_seed(step * 1013 + rank)  # dropout too is a function of the step
        x, y = batch(step, rank)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.step_seconds)
        print(f"step {step} rank {rank} loss {loss.item().hex()}", flush=True)
        if guard.should_stop():  # ② the ranks agree
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                save_atomically(state, options.checkpoint)
            guard.requeue_and_exit()  # ③
    guard.close()
    print(f"rank {rank} is done, restarts {os.environ.get('SLURM_RESTART_COUNT', '0')}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
