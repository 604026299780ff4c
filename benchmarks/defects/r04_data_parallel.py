"""R4: DataParallel, one process for all GPUs; fixed: DDP under torchrun, and on one GPU no wrapper at all."""

import os

import torch
from common import ConvNet, arguments
from torch import nn
from torch.nn import functional as F

if __name__ == "__main__":
    args = arguments(__doc__)
    distributed = args.fixed and int(os.environ.get("WORLD_SIZE", "1")) > 1
    batch_size, side = (8, 32) if args.small else (256, 64)
    if distributed:
        torch.distributed.init_process_group("nccl")
        args.device = f"cuda:{os.environ['LOCAL_RANK']}"
        batch_size //= torch.distributed.get_world_size()
    model = ConvNet(8 if args.small else 64, 4 if args.small else 9).to(args.device)
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    elif not args.fixed:
        model = nn.DataParallel(model)  # the defect
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    labels = torch.randint(100, (batch_size,), device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.steps):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
