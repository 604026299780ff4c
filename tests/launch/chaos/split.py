"""A training for one process that vivace splits over ranks (``--with ddp``), with the words of the example on stdout.

python split.py --steps N --save-steps N --step-seconds S --checkpoint FILE
"""

import argparse
import time

import torch
from torch import nn

from vivace.preemption import Preemption, load_newest, save_atomically

parser = argparse.ArgumentParser()
for name, kind in (("steps", int), ("save-steps", int), ("step-seconds", float), ("checkpoint", str)):
    parser.add_argument(f"--{name}", type=kind)
asked = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
guard = Preemption(save_every_steps=asked.save_steps)
first = 0
if state := load_newest(asked.checkpoint):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
print(f"rank 0 of 1 on here begins at step {first}", flush=True)


def save(step: int) -> None:
    save_atomically(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, asked.checkpoint, keep=2
    )


for step in range(first, asked.steps):
    torch.manual_seed(step * 1013)
    x = torch.randn(32, 16)
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), (x.sum(dim=1, keepdim=True) > 0).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(asked.step_seconds)
    print(f"step {step} rank 0 loss {loss.item().hex()}", flush=True)
    if guard.should_save():
        save(step + 1)
        if guard.stopping:
            guard.requeue_and_exit()
save(asked.steps)
guard.close()
print("rank 0 is done", flush=True)
