"""A character language model that draws its own batches of token ids; validation through ``model.eval()``."""

import torch
from torch import nn

torch.manual_seed(0)
text = torch.randint(0, 32, (5000,))


def batch(size: int = 12, length: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(0, len(text) - length - 1, (size,))
    return (
        torch.stack([text[s : s + length] for s in starts]),
        torch.stack([text[s + 1 : s + length + 1] for s in starts]),
    )


model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(500):
    if step % 20 == 10:
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                model(batch()[0])
        model.train()
    inputs, targets = batch()
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
