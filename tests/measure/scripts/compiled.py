"""A model that is compiled already, by torch.compile or in place. Prints how often dynamo compiled."""

import argparse
import atexit

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--in-place", action="store_true")
parser.add_argument("--steps", type=int, default=500)
args = parser.parse_args()

model = make_model()
if args.in_place:
    model.compile(backend="aot_eager")
else:
    model = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
atexit.register(lambda: print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"]))
steps = 0
while steps < args.steps:
    for inputs, labels in DataLoader(make_dataset(), 32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        steps += 1
        if steps == args.steps:
            break
