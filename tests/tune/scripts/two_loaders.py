"""A validation loader that has its workers is made before the training loader, which has none."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 8))
    validation = DataLoader(data, 4, num_workers=1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.steps > 0:
        for step, (inputs,) in enumerate(DataLoader(data, 4)):
            if step == args.steps:
                break
            model(inputs).mean().backward()
            optimizer.step()
    print("done", args.steps)
