"""R7: anomaly detection was left on; fixed: off."""

import torch
from common import arguments
from torch import nn

if __name__ == "__main__":
    args = arguments(__doc__)
    if not args.fixed:
        torch.autograd.set_detect_anomaly(True)  # the defect
    width, depth, batch_size = (32, 6, 16) if args.small else (1024, 40, 2048)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    model = nn.Sequential(*layers).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch_size, width, device=args.device)
    for _ in range(args.steps):
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
