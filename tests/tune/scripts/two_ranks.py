"""DDP over gloo, for torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} dtype {model.module[0].weight.dtype}", flush=True)
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort a Python that ends (pytorch issue 190489)
