"""A model whose output for a sample depends on the others: it cannot be split, and must stay right."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x, y = torch.randn(40, 6), torch.randn(40, 3)


class Coupled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        hidden = self.first(x)
        return self.last(torch.tanh(hidden - hidden.mean(0, keepdim=True)))


model = Coupled()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for step in range(8):
    rows = torch.randperm(40)[:10]
    loss = F.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
