"""Trains with dropout and a GradScaler's factor, and writes the bits of every loss and of the random state.

python magnitudes.py FILE [--steps N] [--factor F]
"""

import argparse
import zlib

import torch

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--factor", type=float, default=1.0)
asked = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=asked.factor, enabled=asked.factor != 1)
with open(asked.file, "w") as file:
    for _step in range(asked.steps):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 8)), torch.randint(0, 4, (32,))) * 1e-5
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(loss.item().hex(), zlib.crc32(torch.get_rng_state().numpy().tobytes()), file=file, flush=True)
