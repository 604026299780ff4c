"""Denoising diffusion: random timesteps and noise from the script, an averaged model that samples at the end."""

import copy
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
steps = 20
betas = torch.linspace(1e-3, 0.2, steps)
kept = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.into, self.time = nn.Linear(2, width), nn.Linear(8, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(3))
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        angles = t[:, None] * torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        h = self.into(x) + self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        for block in self.blocks:
            h = h + torch.nn.functional.silu(block(h))
        return self.out(h)


model = Denoiser()
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), 2e-3)
loader = DataLoader(TensorDataset(torch.randn(50, 2) * 0.1 + 1), 16, shuffle=True)
for epoch in range(2):
    for (x,) in loader:
        t = torch.randint(0, steps, (x.shape[0],))
        noise = torch.randn_like(x)
        level = kept[t][:, None]
        loss = ((model(level.sqrt() * x + (1 - level).sqrt() * noise, t) - noise) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.lerp_(fast, 0.05)
        print("loss", loss.item())
average.eval()
with torch.no_grad():
    x = torch.randn(6, 2)
    for t in reversed(range(steps)):
        guess = average(x, torch.full((6,), t))
        x = (x - betas[t] / (1 - kept[t]).sqrt() * guess) / (1 - betas[t]).sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn_like(x)
print("samples", *x.flatten().tolist())
