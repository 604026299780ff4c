"""Two networks, two optimizers, one loader; the discriminator steps ``--critic`` times to one of the generator."""

import argparse

import torch
from common import make_dataset
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--critic", type=int, default=1)
args = parser.parse_args()

generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer_c = torch.optim.Adam(critic.parameters())
optimizer_g = torch.optim.Adam(generator.parameters())
bce = nn.BCEWithLogitsLoss()

for _ in range(100):
    for real, _labels in DataLoader(make_dataset(), 16):
        for _ in range(args.critic):
            optimizer_c.zero_grad()
            fake = generator(torch.randn(len(real), 4)).detach()
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            (bce(critic(real), ones) + bce(critic(fake), zeros)).backward()
            optimizer_c.step()
        optimizer_g.zero_grad()
        bce(critic(generator(torch.randn(len(real), 4))), ones).backward()
        optimizer_g.step()
