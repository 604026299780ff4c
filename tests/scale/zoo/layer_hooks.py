"""Features taken from the middle of a model by a hook, as for a perceptual loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
samples, labels = torch.randn(45, 6), torch.randint(0, 4, (45,))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
features = []
model[1].register_forward_hook(lambda module, inputs, output: features.append(output))
for step in range(5):
    chosen = torch.randperm(45)[:10]
    features.clear()
    loss = F.cross_entropy(model(samples[chosen]), labels[chosen]) + features[0].abs().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
