"""A small character-level transformer with AdamW and warm-up, after nanoGPT; its text is Python's own library."""

import argparse
import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()

files = sorted(Path(argparse.__file__).parent.glob("*.py"))[:80]
text = "".join(path.read_text(errors="ignore") for path in files)
text = "".join(c for c in text if c.isascii())
letters = sorted(set(text))
index = {c: n for n, c in enumerate(letters)}
data = torch.tensor([index[c] for c in text])
train, val = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]
BLOCK, WIDTH = 32, 48
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(len(letters), WIDTH), nn.Embedding(BLOCK, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, len(letters))

    def forward(self, x, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        hidden = self.blocks(self.token(x) + self.place(torch.arange(x.shape[1])), mask, is_causal=True)
        return F.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())


def batch(part):
    starts = torch.randint(len(part) - BLOCK - 1, (16,))
    return torch.stack([part[s : s + BLOCK] for s in starts]), torch.stack(
        [part[s + 1 : s + BLOCK + 1] for s in starts]
    )


model = Model()
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=arguments.lr
)
for step in range(arguments.steps + 1):
    if step % 100 == 0:
        model.eval()
        with torch.no_grad():
            state = torch.get_rng_state()
            torch.manual_seed(1)
            losses = {
                name: sum(model(*batch(part)).item() for _ in range(10)) / 10
                for name, part in (("train", train), ("val", val))
            }
            torch.set_rng_state(state)
        print(f"step {step}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        model.train()
    share = min(1.0, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / (arguments.steps + 1)))
    for group in optimizer.param_groups:
        group["lr"] = arguments.lr * share
    loss = model(*batch(train))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
