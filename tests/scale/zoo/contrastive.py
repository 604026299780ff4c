"""A loss that couples all samples of the batch: impossible where each rank sees its part only."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = torch.randn(80, 10)
model = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(12):
    x = data[torch.randperm(80)[:13]]
    first = F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1)
    second = F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1)
    loss = F.cross_entropy(first @ second.T / 0.2, torch.arange(len(x)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
