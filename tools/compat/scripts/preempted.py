"""A training that saves when Slurm warns it and goes on later, for the compatibility suite.

With a step as its argument it warns itself there, as Slurm would.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from vivace.preemption import Preemption, save_atomically

STEPS = 20
warned_at = int(sys.argv[1]) if len(sys.argv) > 1 else None
checkpoint = Path("last.pt")
torch.manual_seed(0)
inputs = torch.randn(STEPS, 4, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
first = 0
if checkpoint.exists():
    state = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
print(f"first step {first}")
guard = Preemption()
for step in range(first, STEPS):
    if step == warned_at:
        os.kill(os.getpid(), signal.SIGUSR1)
    optimizer.zero_grad()
    loss = model(inputs[step]).square().mean()
    loss.backward()
    optimizer.step()
    if guard.should_stop():
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        save_atomically(state, checkpoint)
        guard.requeue_and_exit()
print(f"last loss {loss.item()!r}")
