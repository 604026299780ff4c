"""Volumes: 3-D convolutions with group and instance norm in the memory format of the channels, a schedule per step."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
volumes, targets = torch.randn(13, 2, 6, 6, 6), torch.randn(13)
model = nn.Sequential(
    nn.Conv3d(2, 6, 3, padding=1), nn.GroupNorm(3, 6), nn.ReLU(), nn.Conv3d(6, 6, 3, stride=2),
    nn.InstanceNorm3d(6, affine=True), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(6, 1),
)  # fmt: skip
model = model.to(memory_format=torch.channels_last_3d)
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=9)
for epoch in range(3):
    seen = 0.0
    for x, y in DataLoader(TensorDataset(volumes, targets), 5, shuffle=True):
        out = model(x.to(memory_format=torch.channels_last_3d)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        seen += loss.item() * len(x)
    print("epoch", epoch, seen / len(volumes), schedule.get_last_lr()[0])
