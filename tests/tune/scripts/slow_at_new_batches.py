"""A training that thinks for a while about every batch that it has not seen before: no practice knows of that."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return torch.full((8,), float(index))


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
seen = set()
for _ in range(10):
    for numbers in DataLoader(Numbers(), batch_size=4):
        if (key := tuple(numbers[:, 0].tolist())) not in seen:
            seen.add(key)
            time.sleep(0.080)
        loss = model(numbers).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
