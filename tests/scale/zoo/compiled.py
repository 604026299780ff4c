"""A compiled model, and a compiled loss."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(30, 6), torch.randn(30, 2))
model = torch.compile(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 2)), backend="aot_eager")


@torch.compile(backend="aot_eager")
def criterion(out, target):
    return ((out - target) ** 2).mean()


optimizer = torch.optim.AdamW(model.parameters(), 0.01)
for epoch in range(2):
    for x, y in DataLoader(data, 8, shuffle=True, drop_last=True):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
torch.save(model.state_dict(), "compiled.pt")
print("keys", *sorted(torch.load("compiled.pt")))
