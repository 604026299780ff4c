"""A language model that computes its own loss; padding is ignored, from the second step on. Accumulates two passes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
texts, lengths = torch.randint(0, 12, (40, 9)), torch.randint(2, 9, (40,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, tokens, targets=None):
        logits = self.out(self.embed(tokens))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, 12), targets.view(-1), ignore_index=-1), logits


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(12):
    for _ in range(2):
        chosen = torch.randperm(40)[:7]
        tokens, targets = texts[chosen][:, :-1], texts[chosen][:, 1:].clone()
        if step > 0:
            for row, length in enumerate(lengths[chosen]):
                targets[row, length:] = -1
        loss, logits = model(tokens, targets)
        (loss / 2).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    right = (logits.argmax(-1) == targets)[targets != -1].double().mean()
    print("loss", loss.item(), "norm", norm.item(), "accuracy", right.item())
