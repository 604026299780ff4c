"""A word-level language model (LSTM or Transformer) that updates its parameters by hand: no optimizer object.

    python examples/word_lm.py --epochs 1
    python examples/word_lm.py --model Transformer --data FOLDER      # with train.txt and valid.txt

Plain SGD with a learning rate that falls when the validation stops to improve. Without --data the words are made up.
"""

import argparse
import math
import random
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, help="folder with train.txt and valid.txt")
parser.add_argument("--model", choices=["LSTM", "Transformer"], default="LSTM")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--length", type=int, default=35, help="words that gradients go back through")
parser.add_argument("-b", "--batch-size", type=int, default=20)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--lr", type=float, default=5.0)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--words", type=int, default=60_000, help="length of the text that is made up")
parser.add_argument("--log-interval", type=int, default=20)
parser.add_argument("--save", type=Path, help="where the best model goes")
args = parser.parse_args()

torch.manual_seed(1111)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def made_up_text(count: int, seed: int) -> list[str]:
    """Common words and rare ones; each is followed by one of its two favourites, mostly."""
    chance = random.Random(seed)
    known = range(500)
    text = [0]
    while len(text) < count:
        surprise = chance.random() < 0.3
        rare = int(500 ** chance.random()) - 1
        text.append(rare if surprise else (3 * text[-1] + chance.randint(1, 2)) % len(known))
    return [f"w{number}" for number in text]


def read(split: str, seed: int) -> list[str]:
    if args.data is None:
        return made_up_text(args.words if split == "train" else args.words // 10, seed)
    return (args.data / f"{split}.txt").read_text(encoding="utf-8").replace("\n", " <eos> ").split()


text = {"train": read("train", 1), "valid": read("valid", 2)}
vocabulary = {word: number for number, word in enumerate(dict.fromkeys(text["train"] + text["valid"]))}


def columns(split: str) -> torch.Tensor:
    """The text cut into ``batch_size`` long columns that are read side by side."""
    numbers = torch.tensor([vocabulary[word] for word in text[split]])
    rows = len(numbers) // args.batch_size
    return numbers[: rows * args.batch_size].view(args.batch_size, rows).t().contiguous().to(device)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(vocabulary), args.width)
        self.drop = nn.Dropout(args.dropout)
        self.lstm = nn.LSTM(args.width, args.width, args.layers, dropout=args.dropout)
        self.decode = nn.Linear(args.width, len(vocabulary))

    def forward(self, words, state):
        hidden, state = self.lstm(self.drop(self.embed(words)), state)
        return self.decode(self.drop(hidden)), state


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(vocabulary), args.width)
        self.place = nn.Parameter(torch.randn(args.length, 1, args.width) * 0.02)
        layer = nn.TransformerEncoderLayer(args.width, max(1, args.width // 32), 4 * args.width, args.dropout)
        self.layers = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False)
        self.decode = nn.Linear(args.width, len(vocabulary))

    def forward(self, words, _state):
        mask = nn.Transformer.generate_square_subsequent_mask(len(words), device=words.device)
        hidden = self.layers(self.embed(words) + self.place[: len(words)], mask)
        return self.decode(hidden), None


model = (Recurrent() if args.model == "LSTM" else Attentive()).to(device)
criterion = nn.CrossEntropyLoss()
lr = args.lr


def detach(state):
    return None if state is None else tuple(part.detach() for part in state)


def pieces(source: torch.Tensor):
    for at in range(0, len(source) - 1, args.length):
        length = min(args.length, len(source) - 1 - at)
        yield source[at : at + length], source[at + 1 : at + 1 + length].reshape(-1)


def train(source: torch.Tensor, epoch: int) -> None:
    model.train()
    state, total, began = None, 0.0, time.time()
    for number, (words, following) in enumerate(pieces(source)):
        model.zero_grad()
        output, state = model(words, detach(state))
        loss = criterion(output.flatten(0, 1), following)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
        if number % args.log_interval == args.log_interval - 1:
            took_ms = 1e3 * (time.time() - began) / args.log_interval
            mean = total / args.log_interval
            print(f"epoch {epoch} batch {number + 1}: {took_ms:.1f} ms per batch, loss {mean:.4f}")
            total, began = 0.0, time.time()


def evaluate(source: torch.Tensor) -> float:
    model.eval()
    state, total = None, 0.0
    with torch.no_grad():
        for words, following in pieces(source):
            output, state = model(words, state)
            total += len(words) * criterion(output.flatten(0, 1), following).item()
    return total / (len(source) - 1)


best = math.inf
train_columns, valid_columns = columns("train"), columns("valid")
for epoch in range(args.epochs):
    train(train_columns, epoch)
    loss = evaluate(valid_columns)
    print(f"epoch {epoch}: valid loss {loss:.4f}, perplexity {math.exp(loss):.1f}")
    if loss < best:
        best = loss
        if args.save:
            torch.save(model.state_dict(), args.save)
    else:
        lr /= 4
