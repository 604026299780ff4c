"""A classifier as a LightningModule, with the Trainer's defaults.

python examples/lightning_module.py --max-steps 20 --batch-size 16 --width 16
"""

import argparse
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

try:
    import lightning as L
except ImportError:
    try:
        import pytorch_lightning as L
    except ImportError:
        sys.exit("this example needs Lightning: pip install lightning")


class Patterns(Dataset):
    def __init__(self, images, side, classes):
        self.images, self.side, self.classes = images, side, classes
        self.patterns = torch.randn(classes, 3, side, side, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return self.images

    def __getitem__(self, index):
        label = index % self.classes
        noise = torch.randn(3, self.side, self.side, generator=torch.Generator().manual_seed(index))
        return self.patterns[label] + 2 * noise, label


def conv_block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, 1, 1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Classifier(L.LightningModule):
    def __init__(self, width=64, classes=10, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(
            conv_block(3, width, 1),
            conv_block(width, 2 * width, 2),
            conv_block(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, classes),
        )

    def forward(self, x):
        return self.network(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", (logits.argmax(1) == y).float().mean(), prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x), y), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    parser = argparse.ArgumentParser(description="Train a classifier with Lightning")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--max-steps", type=int, default=-1)
    args = parser.parse_args()

    L.seed_everything(0)
    train_set = Patterns(args.images, args.image_size, 10)
    val_set = Patterns(max(1, args.images // 50), args.image_size, 10)
    trainer = L.Trainer(
        max_epochs=args.epochs, max_steps=args.max_steps, devices=1, logger=False, enable_checkpointing=False
    )
    trainer.fit(
        Classifier(args.width),
        DataLoader(train_set, args.batch_size, shuffle=True, num_workers=args.workers),
        DataLoader(val_set, args.batch_size, num_workers=args.workers),
    )


if __name__ == "__main__":
    main()
