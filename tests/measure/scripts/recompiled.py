"""A compiled model that is compiled again for each of its first lengths: one new length every fourth step."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(batch).relu())


torch.manual_seed(0)
model = Reader()
model.compile(backend="eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = model(torch.randn(2, 3 + step // 4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
