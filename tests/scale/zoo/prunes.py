"""Weights that are pruned in the middle of a training, and trained on."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
x, y = torch.randn(9, 5), torch.randint(0, 3, (9,))


def train(steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


train(3)
prune.l1_unstructured(model[0], "weight", amount=0.3)
train(3)
prune.remove(model[0], "weight")
train(3)
print("zeros", int((model[0].weight == 0).sum()), sum(p.abs().sum().item() for p in model.parameters()))
