"""R1: the training process prepares every batch itself; fixed: worker processes do."""

import numpy as np
import torch
from common import ConvNet, arguments, usable_cores
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    """Costs what decoding and augmenting a small photo costs: some tenths of a millisecond."""

    def __init__(self, side):
        self.side = side

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        random = np.random.default_rng(index)
        photo = random.integers(0, 256, (5 * self.side // 4, 5 * self.side // 4, 3), dtype=np.uint8)
        top, left = random.integers(0, self.side // 4, 2)
        crop = photo[top : top + self.side, left : left + self.side, :: random.choice([-1, 1])]
        image = torch.from_numpy(np.ascontiguousarray(crop.transpose(2, 0, 1))).float().div_(255)
        return (image - 0.5) / 0.25, index % 100


if __name__ == "__main__":
    args = arguments(__doc__)
    dataset = Photos(32 if args.small else 128)
    batch_size = 16 if args.small else 128
    pinned = args.device != "cpu"
    if args.fixed:
        loader = DataLoader(dataset, batch_size, num_workers=min(12, usable_cores()), pin_memory=pinned)
    else:
        loader = DataLoader(dataset, batch_size, pin_memory=pinned)  # the defect
    model = ConvNet(8 if args.small else 64, 4 if args.small else 9).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(args.device, non_blocking=True), labels.to(args.device, non_blocking=True)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= args.steps:
            break
