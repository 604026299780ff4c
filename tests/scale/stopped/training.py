"""A training for one process that saves when it is told to stop, and goes on from there. Split by ``vivace run``.

    python training.py CHECKPOINT STEPS [STEP RANK SIGNAL]

With the last three, that rank sends itself the signal at that step: the others must hear of it from vivace.
"""

import itertools
import os
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vivace.preemption import Preemption, load_newest, save_atomically

checkpoint, steps = sys.argv[1], int(sys.argv[2])
at_step, of_rank, number = (int(word) for word in sys.argv[3:] or ("-1", "-1", "0"))

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(288, 5))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(92, 3, 8, 8), torch.randint(0, 5, (92,)))
per_epoch = 92 // 16
guard = Preemption(save_every_steps=5)

first = 0
if state := load_newest(checkpoint):
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
print("begins at", first, flush=True)


def batches(start: int):
    """From this step on, shuffled anew in every epoch."""
    for epoch in itertools.count(start // per_epoch):
        loader = DataLoader(
            data, batch_size=16, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(epoch)
        )
        yield from itertools.islice(loader, start % per_epoch if epoch == start // per_epoch else 0, None)


for step, (x, y) in zip(range(first, steps), batches(first), strict=False):
    if step == at_step and os.environ.get("VIVACE_RANK", "0") == str(of_rank):
        os.kill(os.getpid(), signal.Signals(number))
    torch.manual_seed(1000 + step)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", loss.item().hex(), flush=True)
    if guard.should_save():
        save_atomically(
            {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, checkpoint, keep=2
        )
        if guard.stopping:
            guard.requeue_and_exit()
save_atomically({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}, checkpoint, keep=2)
guard.close()
print("done", flush=True)
