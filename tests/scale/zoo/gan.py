"""Two networks, two optimizers, and a gradient penalty by autograd.grad with create_graph."""

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
real = torch.randn(64, 6) * 2 + 1
maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_maker = torch.optim.Adam(maker.parameters(), 1e-2)
of_critic = torch.optim.Adam(critic.parameters(), 1e-2)
for step in range(12):
    rows = real[torch.randperm(64)[:15]]
    fake = maker(torch.randn(15, 4)).detach()
    mix = torch.rand(15, 1)
    between = (mix * rows + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(rows).mean() + 10 * penalty
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    made = -critic(maker(torch.randn(15, 4))).mean()
    of_maker.zero_grad()
    made.backward()
    of_maker.step()
    print("loss", loss.item(), penalty.item(), made.item())
