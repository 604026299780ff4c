"""Sparse gradients, a branch that is taken at times only, batches smaller than the number of ranks."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 6, sparse=True)
        self.often, self.seldom = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, tokens, rare):
        hidden = self.embed(tokens).mean(1)
        return self.seldom(hidden) if rare else self.often(hidden)


model = Net()
dense = torch.optim.Adam([*model.often.parameters(), *model.seldom.parameters()], 1e-2)
sparse = torch.optim.SparseAdam(list(model.embed.parameters()), 1e-2)
for step in range(10):
    tokens = torch.randint(0, 30, (1 if step == 4 else 8, 5))
    loss = F.cross_entropy(model(tokens, step % 3 == 2), tokens[:, 0] % 3)
    dense.zero_grad()
    sparse.zero_grad()
    loss.backward()
    dense.step()
    sparse.step()
    print("loss", loss.item())
