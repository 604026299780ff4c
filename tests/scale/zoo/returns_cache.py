"""In the style of a model library: a mask that decides, a cache object among the outputs, the loss computed inside."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Layer:
    def __init__(self, keys):
        self.keys = keys


class Cache:
    def __init__(self):
        self.layers = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.keys, self.out = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12)

    def forward(self, tokens, mask, targets):
        x, cache = self.embed(tokens), Cache()
        if not mask.all():  # one rank's rows may have no padding
            x = x * mask[..., None]
        longest = int(mask.sum(1).max())
        cache.layers.append(Layer(self.keys(x)))
        logits = self.out(x[:, :longest] + cache.layers[0].keys[:, :longest])
        return {"loss": F.cross_entropy(logits.transpose(1, 2), targets[:, :longest], ignore_index=-1), "cache": cache}


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(8):
    tokens, mask = torch.randint(0, 12, (7, 9)), torch.ones(7, 9)
    mask[:3, 6:] = 0
    out = model(tokens, mask, targets=tokens.masked_fill(mask == 0, -1))
    optimizer.zero_grad()
    out["loss"].backward()
    optimizer.step()
    print("loss", out["loss"].item(), "keys", tuple(out["cache"].layers[0].keys.shape))
    print("sum", out["cache"].layers[0].keys.sum().item(), "last", out["cache"].layers[0].keys[-1, 0, 0].item())
