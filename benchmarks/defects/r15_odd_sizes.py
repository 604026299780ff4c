"""R15: sizes that are no multiples of 8, in bf16; fixed: the next multiple of 64."""

import contextlib

import torch
from common import arguments
from torch import nn

if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high")
    width, batch_size = (61, 35) if args.small else (2029, 8189)
    if args.fixed:
        width, batch_size = (-(-n // 64) * 64 for n in (width, batch_size))
    layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch_size, width, device=args.device)
    on_gpu = args.device != "cpu"
    for _ in range(args.steps):
        with torch.autocast("cuda", dtype=torch.bfloat16) if on_gpu else contextlib.nullcontext():
            outputs = model(inputs)
        loss = (outputs.float() - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
