"""Two gloo ranks with gradient accumulation, for the compatibility suite."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(120):
    loss = model(torch.randn(16, 64)).square().mean()
    loss.backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
if dist.get_rank() == 0:
    print(f"last loss {loss.item()!r}")
dist.destroy_process_group()
