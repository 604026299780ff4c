"""Two models and two optimizers that take turns, one frozen meanwhile; the rate falls when the loss does not."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(34, 10), torch.randint(0, 3, (34,)), torch.randint(0, 2, (34,)))
features = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU())
classes, domains = nn.Linear(16, 3), nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
trained = torch.optim.SGD([*features.parameters(), *classes.parameters()], 0.05, momentum=0.9)
against = torch.optim.Adagrad(domains.parameters(), 0.05)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(trained, patience=0, factor=0.5)
for epoch in range(3):
    total = 0.0
    for x, label, domain in DataLoader(data, 9, shuffle=True):
        for p in domains.parameters():
            p.requires_grad_(True)
        loss = F.cross_entropy(domains(features(x).detach()), domain)
        against.zero_grad()
        loss.backward()
        against.step()
        for p in domains.parameters():
            p.requires_grad_(False)
        inside = features(x)
        fooled = -F.cross_entropy(domains(inside), domain)
        total_loss = F.cross_entropy(classes(inside), label) + 0.1 * fooled
        trained.zero_grad()
        total_loss.backward()
        trained.step()
        total += total_loss.item()
        print("losses", loss.item(), total_loss.item())
    plateau.step(total)
    print("rate", trained.param_groups[0]["lr"], [p.grad is None for p in domains.parameters()])
