"""A torchrun script: DistributedDataParallel, one process per GPU (or two on a CPU).

torchrun --standalone --nproc-per-node 2 examples/ddp.py --epochs 1 --samples 640
torchrun --standalone --nproc-per-node gpu examples/ddp.py --width 2048
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.layers(self.norm(x))


def make_dataset(samples, features, classes):
    generator = torch.Generator().manual_seed(0)  # the same on every rank
    x = torch.randn(samples, features, generator=generator)
    teacher = torch.randn(features, classes, generator=generator)
    return TensorDataset(x, (x @ teacher).argmax(dim=1))


def main():
    parser = argparse.ArgumentParser(description="Train with DistributedDataParallel")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("-b", "--batch-size", type=int, default=64, help="per process")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    else:
        device = torch.device("cpu")

    torch.manual_seed(0)
    dataset = make_dataset(args.samples, args.features, 10)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, num_workers=args.workers)
    blocks = [Residual(args.width) for _ in range(args.blocks)]
    model = nn.Sequential(nn.Linear(args.features, args.width), *blocks, nn.Linear(args.width, 10)).to(device)
    model = DDP(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if rank == 0 and step % 20 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {total / (step + 1):.4f}")
    # the model goes before its group: gloo may hang where the model is the last to hold it (pytorch issue 56297)
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
