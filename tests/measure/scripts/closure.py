"""L-BFGS: the optimizer calls forward and backward itself, through a closure. Says the loss that each step returns,
which is the one at its start."""

import torch
from common import make_dataset, make_model

model = make_model()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3, tolerance_grad=0, tolerance_change=0)
inputs, labels = make_dataset(128).tensors


def closure() -> torch.Tensor:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    return loss


for _ in range(500):
    print(f"loss {optimizer.step(closure)!r}")
