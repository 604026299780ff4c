"""A language model with tied weights, warm-up, label smoothing, weight decay for matrices only, accumulation."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
text = torch.randint(0, 17, (400,))


class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(17, width)
        self.positions = nn.Parameter(torch.zeros(12, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True) for _ in range(3)
        )
        self.head = nn.Linear(width, 17, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.size(1))
        x = self.embed(words) * math.sqrt(16) + self.positions[: words.size(1)]
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


model = Model()
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
print("parameters", sum(p.numel() for p in model.parameters()))
for step in range(6):
    total = 0.0
    for _ in range(2):
        starts = torch.randint(0, 400 - 13, (5,))
        batch = torch.stack([text[i : i + 13] for i in starts])
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 17), batch[:, 1:].reshape(-1), label_smoothing=0.1) / 2
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    warmup.step()
    optimizer.zero_grad()
    print(f"step {step} loss {total:.14f} norm {norm:.14f} lr {warmup.get_last_lr()[0]:.6f}")
model.eval()
words = torch.zeros(1, 1, dtype=torch.long)
with torch.no_grad():
    for _ in range(8):
        logits = model(words[:, -12:])[:, -1]
        words = torch.cat([words, torch.multinomial(logits.softmax(-1), 1)], dim=1)
print("written", *words[0].tolist())
