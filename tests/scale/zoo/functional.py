"""Functions of parameters: torch.func (per-sample gradients), a step inside a step through functional_call."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(9, 5), torch.randint(0, 3, (9,))


def loss_of(parameters, x, y):
    return F.cross_entropy(functional_call(model, parameters, (x,)), y)


for step in range(3):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    parameters = dict(model.named_parameters())
    whole = grad(loss_of)(parameters, x, y)
    each = vmap(grad(loss_of), (None, 0, 0))(parameters, x[:, None], y[:, None])
    print("gradients", *[value.abs().sum().item() for value in whole.values()])
    print("of samples", *[value.flatten(1).norm(dim=1).sum().item() for value in each.values()])
for step in range(3):
    parameters = dict(model.named_parameters())
    inner = loss_of(parameters, x, y)
    gradients = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
    ahead = {name: value - 0.1 * gradient for (name, value), gradient in zip(parameters.items(), gradients)}
    outer = loss_of(ahead, x.flip(1), y)
    optimizer.zero_grad()
    outer.backward()
    optimizer.step()
    print("inner", inner.item(), "outer", outer.item(), sum(p.abs().sum().item() for p in model.parameters()))
