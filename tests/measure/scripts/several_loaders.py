"""Semi-supervised: 8 labelled and 24 unlabelled samples per step, from two loaders."""

import itertools

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
labelled, unlabelled = DataLoader(make_dataset(800), 8), DataLoader(make_dataset(2400), 24)
for _ in itertools.repeat(None, 50):
    for (inputs, labels), (extra, _unused) in zip(labelled, unlabelled, strict=True):
        optimizer.zero_grad()
        outputs = model(torch.cat([inputs, extra]))
        loss = torch.nn.functional.cross_entropy(outputs[:8], labels) + outputs[8:].softmax(1).square().mean()
        loss.backward()
        optimizer.step()
