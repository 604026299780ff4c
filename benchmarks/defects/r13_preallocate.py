"""R13: lengths grow, and memory is asked for again and again; fixed: the longest batch comes first."""

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
    if args.fixed:
        one_pass(model, LONGEST).backward()
        optimizer.zero_grad()
    lengths = torch.Generator().manual_seed(0)
    for step in range(args.steps):
        limit = min(LONGEST, 256 + 16 * step)
        length = int(torch.randint(limit // 2, limit + 1, (), generator=lengths))
        loss = one_pass(model, length)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
