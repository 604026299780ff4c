"""A training as people write it: a file that it saves to now and then, a line a step.  python plain.py [quiet]"""

import os
import sys

import torch

quiet = sys.argv[1:] == ["quiet"]
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
start = 0
if os.path.exists("last.pt") and not quiet:
    saved = torch.load("last.pt")
    model.load_state_dict(saved["model"])
    start = saved["step"]
for step in range(start, 30):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not quiet:
        print(f"step {step} loss {loss.item():.4f} error {loss.item() ** 0.5:.4f}", flush=True)
    if (step + 1) % 5 == 0 and not quiet:
        with open("new.pt", "wb") as file:
            torch.save({"model": model.state_dict(), "step": step + 1, "more": torch.zeros(10_000)}, file)
        os.replace("new.pt", "last.pt")
