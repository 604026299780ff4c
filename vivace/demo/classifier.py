"""A small image classifier, written as people write them and naive on purpose: the embedded example.

fp32, NCHW, a plain SGD, a loader without workers, the loss read at every step, a bias before batch norm.
Run by ``vivace measure`` when no command is given: ``python -m vivace.demo.classifier``.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Noisy images of bright squares; the class is the quarter (and size) that the square is in."""

    def __init__(self, size: int, images: int) -> None:
        self.size, self.images = size, images

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, self.size, self.size, generator=generator)
        label = index % 8
        half, side = self.size // 2, self.size // (3 + label // 4)
        top, left = half * (label % 4 // 2), half * (label % 2)
        image[:, top : top + side, left : left + side] += 1.0
        return image, label


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--images", type=int, default=6400)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        block(3, 32), block(32, 64), block(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 8)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(Shapes(args.image_size, args.images), batch_size=args.batch_size, shuffle=True)

    for epoch in range(args.epochs):
        total = 0.0
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {total / (step + 1):.4f}")


if __name__ == "__main__":
    main()
