"""A small convolutional network on made textures (new ones in every batch), with momentum, written as people do."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--steps", type=int, default=400)
arguments = parser.parse_args()

torch.manual_seed(0)
made = torch.Generator().manual_seed(1)
textures = torch.randn(10, 1, 12, 12, generator=made)


def batch(size):
    labels = torch.randint(0, 10, (size,), generator=made)
    clean = textures[labels].roll(int(torch.randint(0, 12, (1,), generator=made)), 3)
    return clean + 1.5 * torch.randn(size, 1, 12, 12, generator=made), labels


model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(32, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
criterion = nn.CrossEntropyLoss()
val_images, val_labels = batch(2000)
for step in range(1, arguments.steps + 1):
    model.train()
    inputs, targets = batch(32)
    optimizer.zero_grad()
    criterion(model(inputs), targets).backward()
    optimizer.step()
    if step % 100 == 0:
        model.eval()
        with torch.no_grad():
            outputs = model(val_images)
            val_loss = criterion(outputs, val_labels).item()
            accuracy = (outputs.argmax(1) == val_labels).float().mean().item()
        print(f"step {step} val_loss {val_loss:.4f} val_acc {accuracy:.4f}")
