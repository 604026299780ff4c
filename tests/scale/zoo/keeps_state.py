"""A model that keeps its hidden state, an auxiliary loss, features and a list in attributes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
samples, labels = torch.randn(45, 6), torch.randint(0, 4, (45,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.cell, self.leave = nn.Linear(6, 8), nn.GRUCell(8, 8), nn.Linear(8, 4)
        self.hidden, self.calls = None, []

    def forward(self, x):
        x = self.enter(x)
        if self.hidden is None or self.hidden.size(0) != x.size(0):
            self.hidden = x.new_zeros(x.size(0), 8)
        self.hidden = self.cell(x, self.hidden.detach())
        self.penalty = (self.hidden**2).mean()
        self.features = x.tanh()
        self.calls.append(1)
        return self.leave(self.hidden)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for step in range(9):
    chosen = torch.randperm(45)[:11]
    loss = F.cross_entropy(model(samples[chosen]), labels[chosen]) + model.penalty + 0.1 * model.features.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), "hidden", model.hidden.sum().item(), "first", model.features[0, 0].item())
    print(len(model.calls), tuple(model.features.shape))
