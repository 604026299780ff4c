"""Each parameter is updated in the middle of the backward pass, as soon as its gradient is there."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
samples, labels = torch.randn(45, 6), torch.randint(0, 4, (45,))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
optimizers = {parameter: torch.optim.Adam([parameter], 1e-2) for parameter in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(update)
for step in range(6):
    chosen = torch.randperm(45)[:10]
    loss = F.cross_entropy(model(samples[chosen]), labels[chosen])
    loss.backward()
    print("loss", loss.item())
