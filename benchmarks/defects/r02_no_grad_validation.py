"""R2: validation builds a graph that nobody uses; fixed: it runs without gradients."""

import contextlib

import torch
from common import ConvNet, arguments
from torch.nn import functional as F


def validate(model, images, labels, batches, fixed):
    model.eval()
    total = torch.zeros((), device=images.device)
    for _ in range(batches):
        with torch.no_grad() if fixed else contextlib.nullcontext():
            total += F.cross_entropy(model(images), labels)  # the defect
    model.train()
    return total / batches


if __name__ == "__main__":
    args = arguments(__doc__)
    batch_size, side = (8, 32) if args.small else (128, 64)
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    labels = torch.randint(100, (batch_size,), device=args.device)
    model = ConvNet(8 if args.small else 64, 4 if args.small else 24).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(args.steps):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            validate(model, images, labels, 10, args.fixed)
