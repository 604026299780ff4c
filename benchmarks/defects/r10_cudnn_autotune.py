"""R10: cuDNN picks its algorithms by a rule of thumb; fixed: it measures them (sizes stay the same)."""

import torch
from common import ConvNet, arguments
from torch.nn import functional as F

if __name__ == "__main__":
    args = arguments(__doc__)
    torch.backends.cudnn.benchmark = args.fixed
    batch_size, side = (8, 32) if args.small else (96, 100)
    model = ConvNet(8 if args.small else 96, 4 if args.small else 9).to(args.device)
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    labels = torch.randint(100, (batch_size,), device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.steps):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
