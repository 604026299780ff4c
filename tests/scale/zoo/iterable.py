"""A stream of samples (an iterable dataset), and batches that a generator of the script makes in numpy."""

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
np.random.seed(0)


class Stream(IterableDataset):
    def __iter__(self):
        generator = np.random.default_rng(5)
        for _ in range(23):
            x = generator.standard_normal(4)
            yield x, np.array([x.sum()])


def batches(count):
    for _ in range(count):
        x = np.random.randn(9, 4)
        yield torch.from_numpy(x), torch.from_numpy(x.sum(1, keepdims=True))


model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.02)
for source in (DataLoader(Stream(), batch_size=6), batches(4)):
    for x, y in source:
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
