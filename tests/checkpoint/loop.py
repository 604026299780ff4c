"""A training loop as somebody would write it with vivace.checkpoint: every kind of state there is, on 1 or more ranks.

    python loop.py FOLDER STEPS [--save-every 5] [--background] [--die RANK:PHASE:STEP]

Appends ``step loss`` to FOLDER/losses.txt, the loss with all its bits. MEETING: a file where the ranks meet.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn

from vivace.checkpoint import Best, Checkpoints, OnError, Phase, Trained, TrainState

SAMPLES, BATCH, SEED = 48, 8, 7


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--background", action="store_true")
    parser.add_argument("--die", default="", help="RANK:PHASE:STEP: SIGKILL there")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--on-error", choices=[one.value for one in OnError], default="warn")
    return parser.parse_args()


def start_ranks() -> tuple[int, int]:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
    return rank, world


def batch_of(inputs: torch.Tensor, epoch: int, first: int, rank: int, world: int) -> torch.Tensor:
    """The order is that of the epoch; what is added to the samples is drawn by three generators, one after another."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED + epoch))
    chosen = inputs[order[first + rank : first + BATCH : world]]
    noise = torch.randn_like(chosen) + float(numpy.random.randn()) + random.gauss(0, 1)
    return chosen + 0.01 * noise


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    rank, world = start_ranks()
    torch.manual_seed(SEED)
    numpy.random.seed(SEED + rank)
    random.seed(SEED + rank)
    inputs = torch.randn(SAMPLES, 6)
    model = nn.Sequential(
        nn.Linear(6, asked.width), nn.BatchNorm1d(asked.width), nn.Dropout(0.2), nn.Linear(asked.width, 1)
    )
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    trained: nn.Module = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.AdamW(trained.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=10_000)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
    torch.manual_seed(SEED + rank)

    saving = -1

    def on_phase(phase: Phase) -> None:
        if asked.die == f"{rank}:{phase.value}:{saving}":
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoints = Checkpoints(
        asked.folder / "checkpoints", keep=2, best=Best("loss"), on_error=OnError(asked.on_error), on_phase=on_phase
    )
    state = {"trained": Trained(trained, optimizer), "average": average}
    progress = checkpoints.load(state) or TrainState()
    if progress.schedule is not None and progress.scaler is not None:
        schedule.load_state_dict(progress.schedule)
        scaler.load_state_dict(progress.scaler)
    total = progress.more.get("total", 0.0)
    losses = (asked.folder / "losses.txt").open("a", buffering=1)
    epoch, samples = progress.epoch, progress.samples
    progress.restore_random()
    for step in range(progress.step, asked.steps):
        loss = trained(batch_of(inputs, epoch, samples, rank, world)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        schedule.step()
        average.update_parameters(model)
        total += loss.item()
        if rank == 0:
            losses.write(f"{step} {loss.item().hex()} {total.hex()} {average.module[0].weight.sum().item().hex()}\n")
        samples += BATCH
        if samples == SAMPLES:
            epoch, samples = epoch + 1, 0
        if (step + 1) % asked.save_every == 0:
            checkpoints.wait()  # so that on_phase knows which save it is in
            saving = step + 1
            now = TrainState(
                step + 1,
                epoch,
                samples,
                {"loss": loss.item()},
                schedule.state_dict(),
                scaler.state_dict(),
                {"total": total},
            )
            (checkpoints.save_in_background if asked.background else checkpoints.save)(state, now)
    checkpoints.close()
    if rank == 0:
        losses.write("done\n")
    if world > 1:
        dist.destroy_process_group()
    sys.exit(0)


if __name__ == "__main__":
    main()
