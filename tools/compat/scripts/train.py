"""A small image classifier, for the compatibility suite: torch only, no vivace, a few hundred steps."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--save", help="write a checkpoint here and read it")
arguments = parser.parse_args()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())

    def forward(self, x):
        return x + self.layers(x)


torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
torch.backends.cuda.enable_flash_sdp(False)
images, labels = torch.randn(640, 3, 16, 16), torch.randint(0, 10, (640,))
loader = DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=True)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), Block(), Block(), Block(), torch.nn.Flatten(), torch.nn.Linear(8 * 256, 10)
)
if arguments.compile:
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _epoch in range(arguments.epochs):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
if arguments.save:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, arguments.save)
    torch.load(arguments.save, weights_only=True)
print(f"last loss {loss.item()!r}")
