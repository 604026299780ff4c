"""A mixture of experts: rows are sent to experts, some of which get none; a second loss, for the balance."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Experts(nn.Module):
    def __init__(self, width=6, count=4):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.out = nn.Linear(width, 3)
        self.balance = None

    def forward(self, x):
        chances = self.gate(x).softmax(-1)
        weight, chosen = chances.max(-1)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero().squeeze(1)
            if rows.numel():
                result = result.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        self.balance = chances.pow(2).sum(-1).mean()
        return self.out(x + result)


model = Experts()
optimizer = torch.optim.AdamW(model.parameters(), 0.02)
for step in range(8):
    x, y = torch.randn(7, 6), torch.randint(0, 3, (7,))
    loss = F.cross_entropy(model(x), y) + 0.1 * model.balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(
        "step",
        step,
        loss.item(),
        model.balance.item(),
        [p.grad is None for p in model.experts.parameters()].count(True),
    )
