"""Distillation: a frozen teacher in eval mode inside every training step. That is no validation."""

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

teacher, student = make_model().eval(), make_model(64)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(50):
    for inputs, _labels in DataLoader(make_dataset(), 32):
        with torch.no_grad():
            target = teacher(inputs).softmax(1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(student(inputs), target).backward()
        optimizer.step()
