"""Everything is made on a default device."""

import torch

torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(10, 8)).square().mean().backward()
    optimizer.step()
