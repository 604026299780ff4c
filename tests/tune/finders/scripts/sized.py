"""A training loop whose step takes the same time at any batch size; it can run out of memory, crash or ignore its flag.

Under torchrun it trains with DDP, and only the last rank runs out of memory.
The size comes from ``-b``/``--batch-size``, or from ``data.batch=N``.
"""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=4)
parser.add_argument("--most", type=int, help="a larger batch runs out of memory")
parser.add_argument("--samples", type=int, default=100_000)
parser.add_argument("--ignore", action="store_true", help="the size stays 4 whatever the flag says")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--step-s", type=float, default=0.02)
parser.add_argument("words", nargs="*")
args = parser.parse_args()
for word in args.words:
    args.batch_size = int(word.removeprefix("data.batch="))
size = 4 if args.ignore else args.batch_size

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
model = torch.nn.Linear(8, 1)
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(args.samples, 8)), size)
for _ in range(100):
    for step, (inputs,) in enumerate(loader):
        if args.most is not None and size > args.most and rank == ranks - 1:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} GiB")
        model(inputs).mean().backward()
        if step % args.accumulate == args.accumulate - 1:
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(args.step_s)
