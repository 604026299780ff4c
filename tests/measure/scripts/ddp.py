"""DistributedDataParallel under torchrun (or spawned by itself with --spawn), gloo on the CPU."""

import argparse
import os

import torch
import torch.distributed as dist
from common import make_dataset, make_model
from torch.utils.data import DataLoader, DistributedSampler


def train(rank: int | None = None) -> None:
    if rank is None:
        dist.init_process_group("gloo")
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["TEST_PORT"])
        dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(make_model(256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = make_dataset()
    sampler = DistributedSampler(dataset)
    for epoch in range(50):
        sampler.set_epoch(epoch)
        for inputs, labels in DataLoader(dataset, 16, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--spawn", action="store_true")
    if parser.parse_args().spawn:
        torch.multiprocessing.spawn(train, nprocs=2)
    else:
        train()
