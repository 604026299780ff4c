"""A small classifier as people write them: made data, a DataLoader, one line per epoch, nothing of vivace in it."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--percent", action="store_true", help="print the accuracy in percent")
parser.add_argument("--crash-at", type=int, help="fail in this epoch")
arguments = parser.parse_args()

torch.manual_seed(0)
centres = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
labels = torch.arange(512) % 4
images = centres[labels] + 1.2 * torch.randn(512, 16, generator=torch.Generator().manual_seed(2))
train_set, test_set = TensorDataset(images[:384], labels[:384]), TensorDataset(images[384:], labels[384:])
train_loader = DataLoader(train_set, arguments.batch_size, shuffle=True)
test_loader = DataLoader(test_set, 64)

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
criterion = nn.CrossEntropyLoss()

for epoch in range(1, arguments.epochs + 1):
    model.train()
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
    if arguments.crash_at == epoch:
        raise RuntimeError("out of ideas")
    model.eval()
    correct = val_loss = 0.0
    with torch.no_grad():
        for inputs, targets in test_loader:
            outputs = model(inputs)
            val_loss += criterion(outputs, targets).item() / len(test_loader)
            correct += (outputs.argmax(1) == targets).sum().item()
    accuracy = correct / len(test_set)
    shown = f"{100 * accuracy:.1f}" if arguments.percent else f"{accuracy:.4f}"
    print(f"Epoch [{epoch}/{arguments.epochs}], Validation Loss: {val_loss:.4f}, Validation Accuracy: {shown}")
