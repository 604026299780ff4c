"""R17: deterministic algorithms only; fixed: any."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from common import ConvNet, arguments
from torch import nn
from torch.nn import functional as F


class WithCounts(nn.Module):
    """A network that also adds up by index: atomic additions, or a sort where the result must not vary."""

    def __init__(self, width, blocks):
        super().__init__()
        self.network = ConvNet(width, blocks)
        self.table = nn.Embedding(64, 100)

    def forward(self, images, marks):
        return self.network(images) + self.table(marks).mean(dim=1)


if __name__ == "__main__":
    args = arguments(__doc__)
    if not args.fixed:
        torch.use_deterministic_algorithms(True)  # the defect
        torch.backends.cudnn.deterministic = True
    batch_size, side = (8, 32) if args.small else (128, 64)
    model = WithCounts(8 if args.small else 64, 4 if args.small else 9).to(args.device)
    images = torch.randn(batch_size, 3, side, side, device=args.device)
    marks = torch.randint(64, (batch_size, 16 if args.small else 2048), device=args.device)
    labels = torch.randint(100, (batch_size,), device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.steps):
        loss = F.cross_entropy(model(images, marks), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
