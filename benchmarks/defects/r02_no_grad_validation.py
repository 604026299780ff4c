"""R2: validation builds a graph that nobody uses; fixed: it runs without gradients."""

import contextlib

import torch
from common import ConvNet, arguments
from torch.nn import functional as F
from torch.utils.data import DataLoader


def validate(model, loader, device, fixed):
    model.eval()
    total = torch.zeros((), device=device)
    for images, labels in loader:
        with torch.no_grad() if fixed else contextlib.nullcontext():
            total += F.cross_entropy(model(images), labels)  # the defect
    model.train()
    return total / len(loader)


if __name__ == "__main__":
    args = arguments(__doc__)
    batch_size, side = (8, 32) if args.small else (128, 64)
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    labels = torch.randint(100, (batch_size,), device=args.device)
    # Ready on the device: only the model takes time.
    training = DataLoader([(images, labels)] * 5, batch_size=None)
    validation = DataLoader([(images, labels)] * 10, batch_size=None)
    model = ConvNet(8 if args.small else 64, 4 if args.small else 24).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(args.steps // 5):
        for images, labels in training:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        validate(model, validation, args.device, args.fixed)
