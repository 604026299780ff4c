"""As plain.py, with a DataLoader that has workers.  python loading.py"""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
start = torch.load("last.pt")["step"] if os.path.exists("last.pt") else 0
loader = DataLoader(TensorDataset(torch.randn(8 * 200, 4)), batch_size=8, num_workers=2)
for step, (batch,) in zip(range(start, 30), loader, strict=False):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    if (step + 1) % 5 == 0:
        torch.save({"step": step + 1}, "last.pt")
