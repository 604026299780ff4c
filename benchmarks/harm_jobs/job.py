"""Four small trainings as people write them, for ``benchmarks/harm_power.py``. One may be harmed on purpose.

    python benchmarks/harm_jobs/job.py cnn
    PLANTED=loss_x1.01 python benchmarks/harm_jobs/job.py cnn

``cnn``: convolutions, batch norm, dropout, SGD, a DataLoader. ``gpt``: attention, dropout, AdamW, clipping, batches cut
by hand. ``lstm``: a regression with Adam. ``accumulate``: four micro-batches a step, clipping, a schedule.
"""

import argparse

import harms
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop1(self.proj(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop2(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary=64, length=32, layers=2, width=64, heads=4, dropout=0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.drop(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Sequence(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, width, batch_first=True), nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1]).squeeze(1)


def convolutions():
    def layers(inputs, outputs):
        return nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)

    return nn.Sequential(
        *layers(3, 16), *layers(16, 32), *layers(32, 64), nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 10)
    )


def cnn(args):
    data = torch.Generator().manual_seed(5)
    labels = torch.randint(10, (2048,), generator=data)
    patterns = torch.randn(10, 3, 16, 16, generator=data)
    images = patterns[labels] + 1.5 * torch.randn(2048, 3, 16, 16, generator=data)
    model = convolutions().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr or 0.05, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True, drop_last=True)
    harms.on_model(model)
    while True:
        for inputs, targets in loader:
            inputs, targets = inputs.to(DEVICE), harms.on_targets(targets.to(DEVICE), 10)
            optimizer.zero_grad()
            harms.on_loss(F.cross_entropy(model(inputs), targets)).backward()
            harms.step(optimizer)


def gpt(args):
    data = torch.Generator().manual_seed(5)
    steps = torch.randint(1, 4, (20_000,), generator=data)
    text = (steps.cumsum(0) + 3 * (steps == 2)) % 64
    torch.backends.cuda.enable_flash_sdp(False)  # for the practice that switches it on again
    model = GPT().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr or 1e-3, weight_decay=0.1)
    harms.on_model(model)
    while True:
        starts = torch.randint(len(text) - 33, (16,)).tolist()
        rows = torch.stack([text[i : i + 33] for i in starts]).to(DEVICE)
        targets = harms.on_targets(rows[:, 1:].reshape(-1), 64)
        optimizer.zero_grad()
        harms.on_loss(F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), targets)).backward()
        harms.clip(model, 0.2)
        harms.step(optimizer)


def lstm(args):
    data = torch.Generator().manual_seed(5)
    inputs = torch.randn(2048, 16, 8, generator=data)
    targets = inputs[:, -4:, 0].sum(1) - inputs[:, :, 1].mean(1) + 0.1 * torch.randn(2048, generator=data)
    model = Sequence().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr or 3e-3)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=32, shuffle=True, drop_last=True)
    harms.on_model(model)
    while True:
        for x, y in loader:
            x, y = x.to(DEVICE), harms.on_targets(y.to(DEVICE), None)
            optimizer.zero_grad()
            harms.on_loss(F.mse_loss(model(x), y)).backward()
            harms.step(optimizer)


def accumulate(args):
    data = torch.Generator().manual_seed(5)
    centres = torch.randn(8, 32, generator=data)
    labels = torch.randint(8, (4096,), generator=data)
    points = centres[labels] + 1.2 * torch.randn(4096, 32, generator=data)
    model = nn.Sequential(
        nn.Linear(32, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 8)
    ).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr or 0.1, momentum=0.9)
    torch.autograd.set_detect_anomaly(True)  # for the practice that switches it off
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 4) / 10))
    loader = DataLoader(TensorDataset(points, labels), batch_size=16, shuffle=True, drop_last=True)
    harms.on_model(model)
    number = 0
    while True:
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(DEVICE)), harms.on_targets(y.to(DEVICE), 8)) / 4
            harms.on_loss(loss).backward()
            harms.after_micro_batch(optimizer, number % 4)
            number += 1
            if number % 4 == 0:
                harms.clip(model, 0.5)
                harms.step(optimizer)
                schedule.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=("cnn", "gpt", "lstm", "accumulate"))
    parser.add_argument("--lr", type=float)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    {"cnn": cnn, "gpt": gpt, "lstm": lstm, "accumulate": accumulate}[arguments.job](arguments)
