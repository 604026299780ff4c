"""Random augmentation in the workers of a loader, a custom collate function, batches that grow."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
random.seed(0)


class Words(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        length = 3 + index % 5
        word = torch.arange(length) % 7 + index % 3
        return word + (1 if random.random() < 0.5 else 0), index % 2


def collate(samples):
    words = nn.utils.rnn.pad_sequence([word for word, _ in samples], batch_first=True)
    return words, torch.tensor([label for _, label in samples])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.EmbeddingBag(12, 8), nn.Linear(8, 2)

    def forward(self, words):
        return self.out(self.embed(words))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for epoch in range(2):
    for words, labels in DataLoader(Words(), 10, shuffle=True, collate_fn=collate, num_workers=2):
        loss = F.cross_entropy(model(words), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
