"""R8: noise is drawn on the host and copied at each step; fixed: it is drawn on the device."""

import torch
from common import ConvNet, arguments
from torch.nn import functional as F

if __name__ == "__main__":
    args = arguments(__doc__)
    batch_size, side = (8, 32) if args.small else (128, 96)
    model = ConvNet(8 if args.small else 64, 4 if args.small else 9).to(args.device)
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    labels = torch.randint(100, (batch_size,), device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.steps):
        if args.fixed:
            noise = torch.randn(images.shape, device=args.device)
        else:
            noise = torch.randn(images.shape).to(args.device)  # the defect
        loss = F.cross_entropy(model(images + 0.1 * noise), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
