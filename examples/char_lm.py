"""A character language model with an LSTM: text cut into columns by hand, no DataLoader, the loss read at every step.

python examples/char_lm.py --epochs 1 --characters 20000
python examples/char_lm.py --text shakespeare.txt --hidden 512
"""

import argparse
import math
import random

import torch
from torch import nn
from torch.nn import functional as F


class CharLSTM(nn.Module):
    def __init__(self, characters, hidden, layers, dropout):
        super().__init__()
        self.embed = nn.Embedding(characters, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, dropout=dropout)
        self.drop = nn.Dropout(dropout)
        self.decode = nn.Linear(hidden, characters)

    def forward(self, x, state):
        out, state = self.lstm(self.drop(self.embed(x)), state)
        return self.decode(self.drop(out)), state


def generated_text(length):
    """Sentences of made-up words: enough order to learn, and nothing to download."""
    rng = random.Random(0)
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9))) for _ in range(500)]
    sentences, made = [], 0
    while made < length:
        sentences.append(" ".join(rng.choice(words) for _ in range(rng.randint(4, 12))).capitalize() + ". ")
        made += len(sentences[-1])
    return "".join(sentences)[:length]


def batchify(ids, batch_size):
    """Columns of consecutive text: (length, batch)."""
    length = len(ids) // batch_size
    return ids[: length * batch_size].view(batch_size, length).t().contiguous()


def evaluate(model, data, bptt, device):
    model.eval()
    total, state = 0.0, None
    with torch.no_grad():
        for i in range(0, len(data) - 1, bptt):
            n = min(bptt, len(data) - 1 - i)
            x, y = data[i : i + n].to(device), data[i + 1 : i + 1 + n].to(device)
            output, state = model(x, state)
            total += n * F.cross_entropy(output.flatten(0, 1), y.flatten()).item()
    model.train()
    return total / (len(data) - 1)


def main():
    parser = argparse.ArgumentParser(description="Train a character language model")
    parser.add_argument("--text", default=None, help="a text file; without one, text is generated")
    parser.add_argument("--characters", type=int, default=2_000_000, help="length of the generated text")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("--bptt", type=int, default=64, help="characters that a gradient reaches back")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = open(args.text, encoding="utf-8").read() if args.text else generated_text(args.characters)  # noqa: SIM115
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([stoi[c] for c in text])
    split = int(0.95 * len(ids))
    train_data, val_data = batchify(ids[:split], args.batch_size), batchify(ids[split:], 10)

    model = CharLSTM(len(chars), args.hidden, args.layers, args.dropout).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        state, total, steps = None, 0.0, 0
        for i in range(0, len(train_data) - 1 - args.bptt, args.bptt):
            x = train_data[i : i + args.bptt].to(device)
            y = train_data[i + 1 : i + 1 + args.bptt].to(device)
            if state is not None:
                state = tuple(s.detach() for s in state)
            output, state = model(x, state)
            loss = F.cross_entropy(output.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
            if steps % 50 == 0:
                print(f"epoch {epoch} step {steps} loss {total / steps:.3f} perplexity {math.exp(total / steps):.2f}")
        print(f"epoch {epoch} validation loss {evaluate(model, val_data, args.bptt, device):.3f}")


if __name__ == "__main__":
    main()
