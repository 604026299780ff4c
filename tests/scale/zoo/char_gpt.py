"""A small GPT that returns its own loss, with dropout in attention and gradient accumulation, without a DataLoader."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(1337)
text = torch.randint(0, 30, (2000,))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.mlp(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(30, 32), nn.Embedding(16, 32)
        self.blocks, self.head = nn.ModuleList([Block(32, 4) for _ in range(2)]), nn.Linear(32, 30, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens, targets=None):
        x = self.token(tokens) + self.place(torch.arange(tokens.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, 30), targets.view(-1))


def get_batch():
    at = torch.randint(2000 - 17, (6,))
    return torch.stack([text[i : i + 16] for i in at]), torch.stack([text[i + 1 : i + 17] for i in at])


model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(6):
    for micro in range(2):
        x, y = get_batch()
        _, loss = model(x, y)
        (loss / 2).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print("loss", loss.item())
model.eval()
with torch.no_grad():
    print("validation", model(*get_batch())[1].item())
