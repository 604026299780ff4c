"""A small, quick training for ``aa.py``: generated data, a few linear layers, only torch to import."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("-b", "--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    layers = [layer for _ in range(4) for layer in (nn.Linear(args.width, args.width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(args.width, 10)).to(args.device)
    inputs, labels = torch.randn(4096, args.width), torch.randint(10, (4096,))
    loader = DataLoader(TensorDataset(inputs, labels), args.batch_size, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _epoch in range(100):
        for batch, label in loader:
            loss = nn.functional.cross_entropy(model(batch.to(args.device)), label.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
