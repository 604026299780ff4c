"""R9: a chain of pointwise operators, each a pass through memory; fixed: compiled into one."""

import torch
from common import arguments
from torch import nn


class HandmadeGelu(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        self.activation = HandmadeGelu()
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return x + self.scale * torch.tanh(self.activation(self.linear(self.norm(x))))


if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high")
    width, depth, batch_size = (32, 3, 64) if args.small else (512, 8, 65536)
    model = nn.Sequential(*[Block(width) for _ in range(depth)]).to(args.device)
    if args.fixed:
        model.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch_size, width, device=args.device)
    for _ in range(args.steps):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
