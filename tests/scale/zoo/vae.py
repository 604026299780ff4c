"""Noise drawn inside the model, a loss that is summed, several outputs."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = torch.rand(60, 20)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.mean, self.log = nn.Linear(20, 12), nn.Linear(12, 3), nn.Linear(12, 3)
        self.up = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 20), nn.Sigmoid())

    def forward(self, x):
        hidden = F.relu(self.down(x))
        mean, log = self.mean(hidden), self.log(hidden)
        return self.up(mean + torch.randn_like(mean) * torch.exp(0.5 * log)), mean, log


model = Vae()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(12):
    x = data[torch.randint(0, 60, (17,))]
    made, mean, log = model(x)
    loss = F.binary_cross_entropy(made, x, reduction="sum") - 0.5 * torch.sum(1 + log - mean**2 - log.exp())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item() / len(x))
