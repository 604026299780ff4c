"""R17: fp32 products without tensor cores; fixed: TF32 allowed."""

import torch
from common import arguments
from torch import nn

if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high" if args.fixed else "highest")
    width, batch_size = (64, 32) if args.small else (2048, 4096)
    layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch_size, width, device=args.device)
    for _ in range(args.steps):
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
