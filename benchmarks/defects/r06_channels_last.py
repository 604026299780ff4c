"""R6: bf16 convolutions in NCHW order; fixed: channels_last."""

import contextlib

import torch
from common import ConvNet, arguments
from torch.nn import functional as F

if __name__ == "__main__":
    args = arguments(__doc__)
    batch_size, side = (8, 32) if args.small else (256, 112)
    model = ConvNet(16 if args.small else 128, 4 if args.small else 9).to(args.device)
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    if args.fixed:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(100, (batch_size,), device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    on_gpu = args.device != "cpu"
    for _ in range(args.steps):
        with torch.autocast("cuda", dtype=torch.bfloat16) if on_gpu else contextlib.nullcontext():
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
