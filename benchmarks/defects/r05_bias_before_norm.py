"""R5: convolutions with a bias that the batch norm after them takes away; fixed: bias=False."""

import torch
from common import ConvNet, arguments
from torch.nn import functional as F

if __name__ == "__main__":
    args = arguments(__doc__)
    batch_size, side = (8, 32) if args.small else (128, 96)
    model = ConvNet(8 if args.small else 64, 4 if args.small else 12, bias=not args.fixed).to(args.device)
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    labels = torch.randint(100, (batch_size,), device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.steps):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
