"""A model that is compiled already: by torch.compile, in place, or with a graph break in its middle.

Prints at its end how many graphs dynamo made: measuring must not change that.
"""

import argparse
import atexit

import torch
from common import make_dataset, make_model
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.net, self.broken = make_model(), broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.broken:
            torch._dynamo.graph_break()
        return self.net(x)


parser = argparse.ArgumentParser()
parser.add_argument("how", choices=("wrapped", "in-place", "graph-break", "builtin"))
parser.add_argument("--steps", type=int, default=500)
args = parser.parse_args()

model = make_model() if args.how == "builtin" else Net(broken=args.how == "graph-break")
if args.how == "wrapped":
    model = torch.compile(model, backend="aot_eager")
else:
    model.compile(backend="aot_eager")
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
