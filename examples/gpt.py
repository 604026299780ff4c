"""Train a small GPT on text, written as people write it: float32, eager, batches cut by hand, no DataLoader.

python examples/gpt.py --steps 20
python examples/gpt.py --text shakespeare.txt --layers 6 --width 384 --heads 6 --length 256
python examples/gpt.py --device cuda --layers 12 --width 768 --heads 12 --length 1024 -b 16 --vocab-size 50304
"""

import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, length, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith(("proj.weight", "mlp.2.weight")):  # what is added to the residual stream
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers))
        self.head.weight = self.tokens.weight

    def _init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        x = self.tokens(idx) + self.positions(torch.arange(idx.shape[1], device=idx.device))
        logits = self.head(self.norm(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def load_tokens(args):
    """The characters of a text file, or a generated sequence that has something to learn; and the vocabulary's size."""
    if args.text:
        with open(args.text, encoding="utf-8") as file:
            text = file.read()
        characters = sorted(set(text))
        index = {c: i for i, c in enumerate(characters)}
        return torch.tensor([index[c] for c in text]), len(characters)
    # Generated: a few phrases over and over, in random order.
    phrases = torch.randint(args.vocab_size, (64, 16))
    return phrases[torch.randint(64, (args.generated_tokens // 16,))].flatten(), args.vocab_size


def get_batch(data, args):
    starts = torch.randint(len(data) - args.length, (args.batch_size,))
    x = torch.stack([data[i : i + args.length] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + args.length] for i in starts])
    return x.to(args.device), y.to(args.device)


@torch.no_grad()
def estimate_loss(model, data, args):
    model.eval()
    losses = [model(*get_batch(data, args))[1].item() for _ in range(args.eval_batches)]
    model.train()
    return sum(losses) / len(losses)


def learning_rate(step, args):
    """Linear warm-up, then a cosine down to a tenth."""
    if step < args.warmup_steps:
        return args.lr * (step + 1) / args.warmup_steps
    progress = min(1.0, (step - args.warmup_steps) / max(1, args.steps - args.warmup_steps))
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def build_parser():
    parser = argparse.ArgumentParser(description="Train a small GPT on text")
    parser.add_argument("--text", default=None, help="a text file; without one, tokens are generated")
    parser.add_argument("--generated-tokens", type=int, default=1_000_000)
    parser.add_argument("--vocab-size", type=int, default=256, help="of generated tokens")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=128, help="tokens of context")
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--warmup-steps", type=int, default=100)
    parser.add_argument("--eval-interval", type=int, default=500)
    parser.add_argument("--eval-batches", type=int, default=10)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1337)
    return parser


def main():
    args = build_parser().parse_args()
    torch.manual_seed(args.seed)

    data, vocab_size = load_tokens(args)
    n = int(0.9 * len(data))
    train_data, val_data = data[:n], data[n:]

    model = GPT(vocab_size, args.length, args.layers, args.width, args.heads).to(args.device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    start = time.time()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        if step > 0 and step % args.eval_interval == 0:
            print(f"step {step}: validation loss {estimate_loss(model, val_data, args):.4f}")
        x, y = get_batch(train_data, args)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % args.log_interval == 0:
            print(f"step {step}: loss {loss.item():.4f}, {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
