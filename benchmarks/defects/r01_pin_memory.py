"""R1: large batches come from pageable memory; fixed: from pinned memory, copied while the GPU computes."""

import torch
from common import ConvNet, arguments
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Already decoded: they cost next to nothing to load, and many bytes to copy."""

    def __init__(self, side):
        self.pictures = [torch.randn(3, side, side) for _ in range(32)]

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return self.pictures[index % 32], index % 100


if __name__ == "__main__":
    args = arguments(__doc__)
    pin = args.fixed and args.device != "cpu"
    batch_size, workers = (16, 1) if args.small else (256, 8)
    dataset = Pictures(32 if args.small else 160)
    loader = DataLoader(dataset, batch_size, num_workers=workers, pin_memory=pin, prefetch_factor=4)  # the defect
    model = ConvNet(8 if args.small else 32, 4 if args.small else 9).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(args.device, non_blocking=pin), labels.to(args.device, non_blocking=pin)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= args.steps:
            break
