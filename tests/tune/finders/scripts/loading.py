"""A loop that waits for its loader (``--load-s`` per sample), or does not (``--step-s``)."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("--load-s", type=float, default=0.0)
parser.add_argument("--step-s", type=float, default=0.0)
parser.add_argument("--iterable", action="store_true")
args = parser.parse_args()


class Slow(Dataset):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(args.load_s)
        return torch.full((8,), float(index))


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(4000):
            time.sleep(args.load_s)
            yield torch.full((8,), float(index))


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for inputs in DataLoader(Stream() if args.iterable else Slow(), 4):
    model(inputs).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(args.step_s)
