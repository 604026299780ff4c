"""A training whose loader sleeps: workers help, and nothing else matters."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--load-ms", type=float, default=10.0)
parser.add_argument("--think-ms", type=float, default=40.0)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("-b", type=int, default=4)
args = parser.parse_args()


class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(args.load_ms / 1e3)
        return torch.full((8,), float(index % 7)), index % 2


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, labels in DataLoader(Slow(), batch_size=args.b, shuffle=True, num_workers=args.workers):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        time.sleep(args.think_ms / 1e3)
        optimizer.step()
