"""Datasets that draw in the training process, one from a generator of its own, and one that does not draw."""

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
numpy.random.seed(1)
samples, labels = torch.randn(45, 6), torch.randint(0, 4, (45,))


class Noisy(Dataset):
    def __init__(self, generator=numpy.random):
        self.generator = generator

    def __len__(self):
        return 45

    def __getitem__(self, index):
        return samples[index] + 0.1 * torch.tensor(self.generator.normal(size=6)), labels[index]


model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for data in (Noisy(), Noisy(numpy.random.default_rng(0)), TensorDataset(samples, labels)):
    loader = DataLoader(data, batch_size=10, shuffle=True, num_workers=2 * isinstance(data, TensorDataset))
    for epoch in range(2):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("loss", loss.item())
