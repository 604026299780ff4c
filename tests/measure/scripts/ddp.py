"""DistributedDataParallel under torchrun (or spawned by itself with --spawn), gloo on the CPU."""

import argparse
import os

import torch
import torch.distributed as dist
from common import make_dataset, make_model
from torch.utils.data import DataLoader, DistributedSampler


def train(rank: int | None = None, uneven: bool = False) -> None:
    if rank is None:
        dist.init_process_group("gloo")
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["TEST_PORT"])
        dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(make_model(256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = make_dataset()
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0) if uneven else DistributedSampler(dataset)
    batch_size = 16 * (1 + dist.get_rank()) if uneven else 16
    for epoch in range(50):
        sampler.set_epoch(epoch)
        for inputs, labels in DataLoader(dataset, batch_size, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    # the model goes before its group: gloo may hang where the model is the last to hold it (pytorch issue 56297)
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--spawn", action="store_true")
    parser.add_argument("--uneven", action="store_true", help="the second rank's batches are twice as large")
    args = parser.parse_args()
    if args.spawn:
        torch.multiprocessing.spawn(train, (args.uneven,), nprocs=2)
    else:
        train()
