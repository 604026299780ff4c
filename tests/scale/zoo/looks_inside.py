"""After some steps: hooks on layers, a trace that is saved and loaded, parameters as one vector, norms by hand."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(9, 5), torch.randint(0, 3, (9,))


def train(steps):
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        by_hand = sum(p.grad.data.norm(2).item() ** 2 for p in model.parameters()) ** 0.5
        optimizer.step()
        print("loss", loss.item(), "norm", by_hand)


train(3)
seen = []
hook = model[1].register_forward_hook(lambda module, given, out: seen.append((len(out), out.std().item())))
train(3)
hook.remove()
print("seen", seen, F.cross_entropy(model(x), y).item())
vector = nn.utils.parameters_to_vector(model.parameters())
print("vector", len(vector), vector.norm().item())
nn.utils.vector_to_parameters(0.99 * vector, model.parameters())
with torch.no_grad():
    for p in model.parameters():
        p.copy_(p.renorm(2, 0, 1.0) if p.dim() > 1 else p.clamp(-0.2, 0.2))
weight = model[0].weight
penalty = (weight @ weight.t() - torch.eye(7)).pow(2).sum() + sum(p.pow(2).sum() for p in model.parameters())
optimizer.zero_grad()
penalty.backward()
optimizer.step()
print("penalty", penalty.item(), sum(p.abs().sum().item() for p in model.parameters()))
print("jacobian", torch.autograd.functional.jacobian(lambda given: model(given).sum(0), x).abs().sum().item())
torch.jit.trace(model, x[:2]).save("traced.pt")
print("traced", torch.jit.load("traced.pt")(x).sum().item())
train(2)
