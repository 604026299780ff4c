"""A sharded training on any number of ranks: FSDP2, or plain where there is one. No random draws after the start.

    python sharded.py FOLDER STEPS

Appends ``step loss`` to FOLDER/losses.txt, and saves after the last step. MEETING: a file where the ranks meet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from loop import start_ranks
from torch import nn
from torch.distributed.fsdp import fully_shard

from vivace.checkpoint import Checkpoints, Trained, TrainState

SAMPLES, BATCH = 48, 12  # what 1 to 4 ranks can share


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    rank, world = start_ranks()
    torch.manual_seed(3)
    inputs = torch.randn(SAMPLES, 7, dtype=torch.double)
    model = nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    if world > 1:
        mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    checkpoints = Checkpoints(folder / "checkpoints")
    state = {"trained": Trained(model, optimizer)}
    progress = checkpoints.load(state) or TrainState()
    for step in range(progress.step, steps):
        whole = inputs[(step * BATCH) % SAMPLES :][:BATCH]
        loss = model(whole[rank::world]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        if world > 1:
            dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        if rank == 0:
            with (folder / "losses.txt").open("a") as file:
                file.write(f"{step} {mean.item() / world!r}\n")
    checkpoints.save_in_background(state, TrainState(steps))
    checkpoints.close()
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
