"""The usual loop, with a validation after every 10 steps; prints each loss with all its digits."""

import argparse

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--no-eval-mode", action="store_true")
parser.add_argument("--api-key", default="")
args = parser.parse_args()

model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = torch.nn.CrossEntropyLoss()
train = DataLoader(make_dataset(args.steps * args.batch_size), args.batch_size, num_workers=args.workers)
valid = DataLoader(make_dataset(64), 16)

for step, (inputs, labels) in enumerate(train):
    optimizer.zero_grad()
    loss = criterion(model(inputs), labels)
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item()!r}")
    if step % 10 == 9:
        if not args.no_eval_mode:
            model.eval()
        with torch.no_grad():
            print("valid", sum(criterion(model(x), y).item() for x, y in valid))
        model.train()
print("finished")
