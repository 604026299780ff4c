"""R14: DDP looks for unused parameters at each step, and there are none; fixed: it does not, and gradients are views.

torchrun --nproc-per-node 2 benchmarks/defects/r14_ddp_options.py --device cpu
"""

import torch
from common import arguments
from torch import nn

if __name__ == "__main__":
    args = arguments(__doc__)
    torch.distributed.init_process_group("gloo")
    width, depth, batch_size = (32, 8, 8) if args.small else (256, 60, 8)
    model = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())])
    if args.fixed:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    else:
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)  # the defect
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch_size, width)
    for _ in range(args.steps):
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
