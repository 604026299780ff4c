"""A small training with a checkpoint; ends by itself with the exit code asked for."""

import argparse
import shutil
import signal
import sys
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--save")
parser.add_argument("--load")
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--crash-at", type=int)
parser.add_argument("--oom-at", type=int)
parser.add_argument("--hang-at", type=int)
parser.add_argument("--wait-for-signal", action="store_true")
parser.add_argument("--delete", help="a folder that it takes for its own, when it begins")
args = parser.parse_args()
if args.delete:
    shutil.rmtree(args.delete)
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append("usr1"))

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if args.load:
    state = torch.load(args.load, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
for step in range(args.steps):
    if step == args.crash_at:
        raise RuntimeError("planted crash")
    if step == args.oom_at:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
    if step == args.hang_at:
        time.sleep(3600)
    images, labels = torch.randn(4, 3, 8, 8), torch.randint(2, (4,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f} {model[0].weight.is_contiguous(memory_format=torch.channels_last)}")
while args.wait_for_signal and not got:
    print("waiting", flush=True)
    time.sleep(0.1)
if args.save:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.save)
print("got", got)
sys.exit(args.exit)
