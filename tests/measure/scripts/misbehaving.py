"""Goes wrong in the way that is asked for."""

import argparse
import atexit
import sys
import time

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("how")
parser.add_argument("--at", type=int, default=1000)
args = parser.parse_args()


def misbehave() -> None:
    print("about to:", args.how, flush=True)
    if args.how == "crash":
        raise ValueError("the data is broken")
    if args.how == "exit":
        sys.exit(3)
    if args.how == "hang":
        time.sleep(600)
    if args.how == "oom":
        torch.empty(2**60, dtype=torch.uint8)


class SlowToTakeApart:
    def __del__(self) -> None:
        print("taken apart", flush=True)


if args.at == 0:
    misbehave()
slow = SlowToTakeApart() if args.how == "slow-end" else None
if args.how == "slow-end":
    atexit.register(print, "the script's own exit handler", flush=True)
    never_closed = open("never_closed.txt", "w")  # noqa: SIM115
    never_closed.write("written")
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
for _ in range(1 if args.how == "never-step" else 10):
    for inputs, labels in DataLoader(make_dataset(800), 8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        try:
            loss.backward()
            if args.how != "never-step":
                optimizer.step()
        except BaseException:
            if args.how != "swallow":
                raise
        step += 1
        if step == args.at:
            misbehave()
