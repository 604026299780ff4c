"""Gradient accumulation: four backward passes to one optimizer step."""

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

model = make_model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(100):
    for i, (inputs, labels) in enumerate(DataLoader(make_dataset(), 8)):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels) / 4
        loss.backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
