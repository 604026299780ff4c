"""Two ranks that average their gradients: one process forks the other.  python ranks.py STEPS"""

import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist

meeting = tempfile.mktemp()
rank = 0 if os.fork() else 1
dist.init_process_group(
    "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=timedelta(seconds=600)
)
torch.manual_seed(rank)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
if rank == 0:
    os.wait()
