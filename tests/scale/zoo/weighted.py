"""Samples drawn by weight, augmented at random in the main process; class weights in the loss; a batch sampler."""

import random

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, WeightedRandomSampler

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
random.seed(0)
images, labels = torch.randn(40, 1, 8, 8), (torch.rand(40) < 0.2).long()


class Augmented(Dataset):
    def __len__(self):
        return len(images)

    def __getitem__(self, index):
        image = images[index]
        if random.random() < 0.5:
            image = image.flip(-1)
        shift = random.randint(-1, 1)
        return torch.roll(image, shift, -1) + 0.1 * torch.randn(1, 8, 8), labels[index]


model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
chances = torch.where(labels == 1, 4.0, 1.0)
by_weight = DataLoader(Augmented(), 9, sampler=WeightedRandomSampler(chances, 40))
in_batches = DataLoader(Augmented(), batch_sampler=BatchSampler(RandomSampler(images), 7, drop_last=False))
for loader in (by_weight, in_batches):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item(), y.sum().item())
