"""Gradients as values: a penalty on the gradient of the weights (second derivatives), penalties on the weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
for step in range(5):
    x, y = torch.randn(10, 6), torch.randint(0, 3, (10,))
    loss = F.cross_entropy(model(x), y)
    gradients = torch.autograd.grad(loss, model.parameters(), create_graph=True)
    penalty = sum(g.pow(2).sum() for g in gradients)
    weights = sum(p.abs().sum() for p in model.parameters())
    optimizer.zero_grad()
    (loss + 0.1 * penalty + 1e-3 * weights).backward()
    optimizer.step()
    print("step", step, loss.item(), penalty.item(), weights.item())
for step in range(3):  # one step ahead by hand, then the gradient at that place
    x, y = torch.randn(10, 6), torch.randint(0, 3, (10,))
    before = [p.detach().clone() for p in model.parameters()]
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    with torch.no_grad():
        for p, g in zip(model.parameters(), gradients):
            p -= 0.1 * g
    ahead = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    ahead.backward()
    with torch.no_grad():
        for p, old in zip(model.parameters(), before):
            p.copy_(old)
    optimizer.step()
    print("ahead", ahead.item(), next(p.norm().item() for p in model.parameters()))
