"""Two workers that take 250 ms a batch, a queue of thirty batches, and a model that takes some 20 ms per step."""

import argparse
import time

import torch
from common import make_model
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--load-ms", type=float, default=250)
parser.add_argument("--step-ms", type=float, default=20)
parser.add_argument("--batches", type=int, default=1000)
parser.add_argument("--keep", action="store_true", help="the workers until the script ends")
parser.add_argument(
    "--validate", action="store_true", help="between a batch and its step, from a loader without workers"
)
args = parser.parse_args()


class Slow(Dataset):
    def __len__(self) -> int:
        return args.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(args.load_ms / 1e3)
        return torch.randn(8)


model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Slow(), 1, num_workers=2, prefetch_factor=15, persistent_workers=args.keep)
batches = iter(loader)
while batches._data_queue.qsize() < 30:  # as after a long compilation: the queue is full when the training begins
    time.sleep(0.01)
for inputs in batches:
    if args.validate:
        with torch.no_grad():
            for (held_out,) in DataLoader([(inputs[0],)], 1):
                model(held_out)
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    time.sleep(args.step_ms / 1e3)
    optimizer.step()
