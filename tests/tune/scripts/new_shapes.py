"""Batches padded to their own lengths, on a machine that thinks for a while about every shape that is new to it."""

import random
import time

import torch
from torch.utils.data import DataLoader

draw = random.Random(0)
texts = [torch.ones(draw.randint(20, 4000), 8) for _ in range(2000)]
known = set()


def padded(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


class Reader(torch.nn.Linear):
    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.training and batch.shape not in known:
            known.add(batch.shape)
            time.sleep(0.080)
        return super().forward(batch)


model = Reader(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for _ in range(10):
    for batch in DataLoader(texts, batch_size=2, collate_fn=padded):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
