"""Metric learning: the hardest triplets of a batch, found by sorting distances between all of its samples."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 7), torch.randint(0, 4, (48,)))
model = nn.Sequential(nn.Linear(7, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 5))
optimizer = torch.optim.Adamax(model.parameters(), 0.01)
for epoch in range(2):
    for x, label in DataLoader(data, 13, shuffle=True):
        points = F.normalize(model(x), dim=1)
        distances = torch.cdist(points, points)
        same = label[:, None] == label[None, :]
        far = distances.masked_fill(~same, -1.0).max(1).values
        near = distances.masked_fill(same, 9.0).topk(2, dim=1, largest=False).values.mean(1)
        hardest = F.relu(far - near + 0.3).sort(descending=True).values[: len(x) // 2]
        loss = hardest.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item(), hardest.argmax().item())
