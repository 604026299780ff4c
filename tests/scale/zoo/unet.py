"""Segmentation: a U-Net with batch norm, cross entropy and dice over the batch, and the intersection over union."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
images = torch.randn(22, 1, 16, 16)
masks = (F.avg_pool2d(images, 3, 1, 1) > 0).long().squeeze(1)


def conv(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.down1, self.down2 = conv(1, width), conv(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.last = nn.Sequential(conv(2 * width, width), nn.Conv2d(width, 2, 1))

    def forward(self, x):
        high = self.down1(x)
        low = self.down2(F.max_pool2d(high, 2))
        return self.last(torch.cat([high, self.up(low)], dim=1))


def dice(logits, target):
    chance = logits.softmax(1)[:, 1]
    both = (chance * target).sum()
    return 1 - (2 * both + 1) / (chance.sum() + target.sum() + 1)


net = UNet()
optimizer = torch.optim.RMSprop(net.parameters(), 1e-3, momentum=0.9, weight_decay=1e-8)
for epoch in range(2):
    net.train()
    for x, y in DataLoader(TensorDataset(images, masks), 5, shuffle=True, drop_last=True):
        out = net(x)
        loss = F.cross_entropy(out, y) + dice(out, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.1)
        optimizer.step()
        print("loss", loss.item())
    net.eval()
    both = either = 0
    with torch.no_grad():
        for x, y in DataLoader(TensorDataset(images, masks), 8):
            found = net(x).argmax(1)
            both += ((found == 1) & (y == 1)).sum().item()
            either += ((found == 1) | (y == 1)).sum().item()
    print("iou", both / either)
