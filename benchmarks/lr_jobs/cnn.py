"""A small convolutional network on made textures, with momentum, written as people do."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()

made = torch.Generator().manual_seed(1)
textures = torch.randn(10, 1, 12, 12, generator=made)
labels = torch.randint(0, 10, (3000,), generator=made)
shifts = torch.randint(0, 12, (3000,), generator=made)
clean = torch.stack([textures[c].roll(int(s), 2) for c, s in zip(labels, shifts, strict=True)])
images = clean + 1.5 * torch.randn(3000, 1, 12, 12, generator=made)
train, test = TensorDataset(images[:2400], labels[:2400]), TensorDataset(images[2400:], labels[2400:])

torch.manual_seed(arguments.seed)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(32, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for epoch in range(arguments.epochs):
    model.train()
    for inputs, targets in DataLoader(train, 32, shuffle=True):
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        outputs = model(images[2400:])
        val_loss = criterion(outputs, labels[2400:]).item()
        accuracy = (outputs.argmax(1) == labels[2400:]).float().mean().item()
    print(f"epoch {epoch} val_loss {val_loss:.4f} val_acc {accuracy:.4f}")
