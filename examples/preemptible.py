"""A training that survives time limits, preemption and dead nodes, and ends with the losses of one that was left alone.

    vivace submit --gpus 2 --time 20h -- python examples/preemptible.py --steps 100000

Three places are for that (marked ①②③); the rest is any training. Runs on one process, under torchrun or under srun.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vivace import distributed
from vivace.preemption import Preemption, load_newest, save_atomically


def batch(step: int, rank: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A function of step and rank: what a resumable loader must be. Fixed weights make it learnable."""
    random = torch.Generator().manual_seed(step * 1009 + rank)
    x = torch.randn(size, 16, generator=random)
    return x, (x.sum(dim=1, keepdim=True) > 0).float()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/preemptible.pt"))
    parser.add_argument("--save-minutes", type=float, default=10.0, help="What a dead node may cost.")
    parser.add_argument("--save-steps", type=int, help="The same in steps.")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="Pretend that a step takes longer.")
    options = parser.parse_args()
    distributed.init_process_group()
    train(options)
    distributed.destroy_process_group()  # after the model is gone: gloo may hang where a model is the last to hold it


def train(options: argparse.Namespace) -> None:
    device, rank = distributed.device, distributed.rank
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)).to(device)
    # Without the option DDP arranges its buckets anew after the first step of each start. With three ranks or more the
    # gradients of a resumed job would then be summed in another order, and the losses would differ in the last bit.
    model = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    guard = Preemption(save_every_minutes=options.save_minutes, save_every_steps=options.save_steps)  # ①

    first = 0
    if state := load_newest(options.checkpoint, map_location=device):  # ② the newest file that is whole
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    print(f"rank {rank} of {distributed.world_size} on {distributed.hostname} begins at step {first}", flush=True)

    def save(step: int) -> None:
        if rank == 0:
            kept: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            save_atomically(kept, options.checkpoint, keep=2)

    for step in range(first, options.steps):
        torch.manual_seed(step * 1013 + rank)  # dropout too is a function of the step
        x, y = batch(step, rank)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.step_seconds)
        print(f"step {step} rank {rank} loss {loss.item().hex()}", flush=True)
        if guard.should_save():  # ③ now and then, and when the job must stop: all ranks at the same step
            save(step + 1)
            if guard.stopping:
                guard.requeue_and_exit()
    save(options.steps)  # should the job be started once more, nothing is trained again
    guard.close()
    print(f"rank {rank} is done, restarts {os.environ.get('SLURM_RESTART_COUNT', '0')}", flush=True)


if __name__ == "__main__":
    main()
