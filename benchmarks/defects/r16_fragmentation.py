"""R16: random lengths break the memory into pieces, and the allocator starts over; fixed: expandable segments."""

import os
import sys

if "--fixed" in sys.argv:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch
from common import arguments
from varying import Stack, one_pass, take_the_rest_of_the_memory

LONGEST = 2048

if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high")
    model = Stack().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    take_the_rest_of_the_memory(model, LONGEST)
    lengths = torch.Generator().manual_seed(0)
    for _ in range(args.steps):
        length = int(torch.randint(LONGEST // 4, LONGEST + 1, (), generator=lengths))
        loss = one_pass(model, length)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
