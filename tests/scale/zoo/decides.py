"""A forward that takes another way for some batches: parts of a batch may decide otherwise than the whole."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
samples, labels = torch.randn(45, 6), torch.randint(0, 4, (45,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        return self.left(x) if x[:, 0].mean() > 0.05 else self.right(x)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    chosen = torch.randperm(45)[:10]
    x = samples[chosen].abs() if step < 3 else samples[chosen]  # at first, all decide alike
    loss = F.cross_entropy(model(x), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), "left", model.left.weight.grad is not None)
