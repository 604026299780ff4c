"""Batches of their own length each, read by an LSTMCell in a loop, under DDP with two backward passes to a step."""

import argparse
import contextlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--no-sync", action="store_true", help="exchange gradients once per step")
args = parser.parse_args()


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.classify = nn.LSTMCell(8, 16), nn.Linear(16, 4)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        state = None
        for position in range(sequences.shape[1]):
            state = self.cell(sequences[:, position], state)  # one position in time
        return self.classify(state[0])


torch.manual_seed(0)
store = tempfile.NamedTemporaryFile()  # noqa: SIM115
dist.init_process_group("gloo", init_method=f"file://{store.name}.store", rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(Reader())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(200):
    length = 4 + step % 5 if step % 7 else 10 + step  # five lengths that come again, and one in seven that does not
    for last in (False, True):
        alone = contextlib.nullcontext() if last or not args.no_sync else model.no_sync()
        with alone:
            loss = model(torch.randn(6, length, 8)).square().mean()
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
