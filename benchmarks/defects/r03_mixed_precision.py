"""R3: large products in TF32; fixed: bf16 autocast around the forward."""

import contextlib

import torch
from common import arguments
from torch import nn

if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high")
    width, depth, batch_size = (64, 3, 32) if args.small else (4096, 6, 8192)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch_size, width, device=args.device)
    kind = args.device.split(":")[0]
    for _ in range(args.steps):
        with torch.autocast(kind, dtype=torch.bfloat16) if args.fixed else contextlib.nullcontext():
            outputs = model(inputs)
        loss = (outputs.float() - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
