"""Adversarial training: gradients of the input, computed by hand; two calls in one step; label smoothing."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x, y = torch.randn(40, 3, 8, 8), torch.randint(0, 4, (40,))
model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.05, nesterov=True, momentum=0.9)
for step in range(8):
    rows = torch.randperm(40)[:9]
    clean = x[rows].clone().requires_grad_()
    loss = F.cross_entropy(model(clean), y[rows])
    loss.backward()
    moved = (clean + 0.1 * clean.grad.sign()).detach()
    optimizer.zero_grad()
    hard = F.cross_entropy(model(moved), y[rows], label_smoothing=0.1)
    hard.backward()
    optimizer.step()
    print("loss", loss.item(), hard.item(), clean.grad.abs().sum().item())
