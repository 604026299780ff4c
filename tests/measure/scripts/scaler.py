"""fp16-style training with a GradScaler; every fifth step has infinite gradients, so the scaler skips it."""

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
step = 0
for _ in range(50):
    for inputs, labels in DataLoader(make_dataset(), 32):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        print(f"loss {loss.item()!r}")
        scaler.scale(loss).backward()
        if step % 5 == 4:
            next(model.parameters()).grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        step += 1
