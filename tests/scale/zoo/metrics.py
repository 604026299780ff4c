"""Metric objects with a state of their own (torchmetrics): updated in batches, computed and reset in epochs."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchmetrics
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(45, 6), torch.randint(0, 3, (45,)))
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
kind = {"task": "multiclass", "num_classes": 3}
scores = torchmetrics.MetricCollection(
    [torchmetrics.Accuracy(**kind), torchmetrics.F1Score(**kind, average="macro"), torchmetrics.AUROC(**kind)]
)
mean = torchmetrics.MeanMetric()
for epoch in range(2):
    for x, y in DataLoader(data, 8, shuffle=True):
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.update(out.softmax(-1), y)
        mean.update(loss.detach(), weight=len(y))
    print("epoch", epoch, mean.compute().item(), *[value.item() for value in scores.compute().values()])
    scores.reset()
    mean.reset()
