"""Batches of dicts that are edited in place, mixed and viewed; outputs that go through the script's own functions."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
samples, labels = torch.randn(45, 6), torch.randint(0, 4, (45,))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
scale, shift = nn.Parameter(torch.ones(())), torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([*model.parameters(), scale], 0.05)
loader = DataLoader([{"x": samples[i], "y": labels[i], "i": i} for i in range(45)], batch_size=8, shuffle=True)
for epoch in range(2):
    for batch in loader:
        x, y = batch["x"], batch["y"]
        pairs = x.view(x.size(0), 2, 3)
        x.mul_(1.1)
        x[0] = 0
        order = torch.randperm(x.size(0))
        out = model(0.3 * x + 0.7 * x[order])
        z = out * scale + shift
        loss = 0.3 * F.cross_entropy(z, y) + 0.7 * F.cross_entropy(z, y[order]) + 0.1 * Square.apply(z).mean()
        loss = loss + torch.cat([out, z]).std() + (F.softmax(z, 1) * F.log_softmax(z, 1)).sum(1).mean()
        loss = loss + z.gather(1, y[:, None]).mean() + F.mse_loss(out[:, :2], pairs[:, 0, :2])
        optimizer.zero_grad()
        shift.grad = None
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            shift -= 0.1 * shift.grad
        print("loss", loss.item(), "scale", scale.item(), "shift", shift.sum().item(), "pairs", pairs[1, 1, 1].item())
        print(batch["i"].tolist(), f"{out.max():.6f}", out.std(dim=1).mean().item(), out.detach().numpy().sum())
        print((out.argmax(1) == y).float().mean().item(), len(x), x.dtype, out.t().shape)
