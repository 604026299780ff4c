"""Averaged weights, warm-up by hand, a penalty on the weights that the script adds itself, a frozen layer."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x, y = torch.randn(50, 7), torch.randn(50, 2)
model = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
for p in model[0].parameters():
    p.requires_grad_(False)
averaged = copy.deepcopy(model)
optimizer = torch.optim.RMSprop([p for p in model.parameters() if p.requires_grad], 1e-2)
for step in range(12):
    optimizer.param_groups[0]["lr"] = 1e-2 * min(1, (step + 1) / 5)
    rows = torch.randperm(50)[:11]
    loss = F.mse_loss(model(x[rows]), y[rows]) + 1e-2 * sum(p.pow(2).sum() for p in model.parameters())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, p in zip(averaged.parameters(), model.parameters()):
            mean.lerp_(p, 0.1)
    print("loss", loss.item(), F.mse_loss(averaged(x), y).item())
