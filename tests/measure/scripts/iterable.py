"""An iterable dataset that makes whole batches itself."""

import torch
from common import make_model
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        while True:
            inputs = torch.randn(20, 8, generator=generator)
            yield {"inputs": inputs, "labels": inputs.argmax(1) % 4}


model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Stream(), batch_size=None):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch["inputs"]), batch["labels"]).backward()
    optimizer.step()
