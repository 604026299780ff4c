"""R11: values are read from the GPU at every step; fixed: every fifty steps."""

import torch
from common import arguments
from torch import nn

if __name__ == "__main__":
    args = arguments(__doc__)
    width, depth, batch_size = (32, 4, 16) if args.small else (512, 24, 4096)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    model = nn.Sequential(*layers).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    inputs = torch.randn(batch_size, width, device=args.device)
    every = 50 if args.fixed else 1
    total = torch.zeros((), device=args.device)
    for step in range(args.steps):
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if step % every == 0:
            largest = max(p.grad.abs().max().item() for p in model.parameters())  # the defect
        optimizer.step()
        total += loss.detach()
        if step % every == 0:
            print(
                f"step {step} mean loss {total.item() / (step + 1):.4f}, largest gradient {largest:.3f}"
            )  # the defect
