"""Train a ResNet on JPEG images, in the style of a thousand public scripts: DataParallel, meters read at every step.

python examples/image_classifier.py --arch resnet18 --image-size 64 -b 16 --images 320 --workers 0
python examples/image_classifier.py --arch resnet50 -b 256 --workers 4
python examples/image_classifier.py --data path/to/imagenet
"""

import argparse
import io
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

try:
    from torchvision import datasets, models, transforms

    build_model = models.get_model
except ImportError:  # vivace's own are the same, and ship with this file
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from vivace.train import data as datasets
    from vivace.train.data import transforms
    from vivace.train.models import resnet

    def build_model(name, num_classes):
        return resnet.by_name(name, num_classes)


class GeneratedJpegs(Dataset):
    """A few hundred JPEG files in memory, decoded again each time: what a folder of photos costs to read."""

    def __init__(self, length, classes, transform, side=256, files=256):
        self.length, self.classes, self.transform = length, classes, transform
        rng = np.random.default_rng(0)
        self.files = []
        for i in range(min(files, length)):
            colour = np.random.default_rng(i % classes).integers(0, 192, (4, 4, 3), dtype=np.uint8)
            picture = np.kron(colour, np.ones((side // 4, side // 4, 1), dtype=np.uint8))
            picture = picture + rng.integers(0, 64, picture.shape, dtype=np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(picture).save(buffer, "JPEG")
            self.files.append(buffer.getvalue())

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        number = index % len(self.files)
        image = Image.open(io.BytesIO(self.files[number])).convert("RGB")
        return self.transform(image), number % self.classes


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)

    def __str__(self):
        return f"{self.name} {self.val:.3f} ({self.avg:.3f})"


def accuracy(output, target, topk=(1, 5)):
    with torch.no_grad():
        _, pred = output.topk(min(max(topk), output.size(1)), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum() * (100.0 / target.size(0)) for k in topk]


def train(loader, model, criterion, optimizer, epoch, device, args):
    batch_time, data_time = AverageMeter("time"), AverageMeter("data")
    losses, top1, top5 = AverageMeter("loss"), AverageMeter("acc@1"), AverageMeter("acc@5")
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(loader):
        data_time.update(time.time() - end)
        images = images.to(device)
        target = target.to(device)

        output = model(images)
        loss = criterion(output, target)

        acc1, acc5 = accuracy(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(acc1.item(), images.size(0))
        top5.update(acc5.item(), images.size(0))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            print(f"epoch {epoch} [{i}/{len(loader)}]", batch_time, data_time, losses, top1, top5, sep="  ")


def validate(loader, model, criterion, device):
    losses, top1 = AverageMeter("loss"), AverageMeter("acc@1")
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            images, target = images.to(device), target.to(device)
            output = model(images)
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(accuracy(output, target)[0].item(), images.size(0))
    print(f"validation  {losses}  {top1}")
    return top1.avg


def build_datasets(args):
    normalize = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    for_training = transforms.Compose(
        [transforms.RandomResizedCrop(args.image_size), transforms.RandomHorizontalFlip(), *normalize]
    )
    for_validation = transforms.Compose(
        [transforms.Resize((args.image_size, args.image_size)), transforms.CenterCrop(args.image_size), *normalize]
    )
    if args.data is None:
        return (
            GeneratedJpegs(args.images, args.classes, for_training),
            GeneratedJpegs(max(1, args.images // 20), args.classes, for_validation),
        )
    return (
        datasets.ImageFolder(str(Path(args.data) / "train"), for_training),
        datasets.ImageFolder(str(Path(args.data) / "val"), for_validation),
    )


def main():
    parser = argparse.ArgumentParser(description="Train a ResNet on images")
    parser.add_argument("--data", default=None, help="folder with train/ and val/; without it images are generated")
    parser.add_argument("--images", type=int, default=100_000, help="images to generate")
    parser.add_argument("--classes", type=int, default=100, help="classes to generate")
    parser.add_argument("-a", "--arch", default="resnet18")
    parser.add_argument("-j", "--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("-b", "--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--print-freq", type=int, default=10)
    parser.add_argument("--save", default=None, help="file for a checkpoint after each epoch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = build_datasets(args)
    classes = args.classes if args.data is None else len(train_set.classes)
    print(f"=> creating model '{args.arch}'")
    model = build_model(args.arch, num_classes=classes).to(device)
    model = nn.DataParallel(model)

    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=args.workers)

    for epoch in range(args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, device, args)
        acc1 = validate(val_loader, model, criterion, device)
        scheduler.step()
        if args.save:
            state = {"epoch": epoch + 1, "state_dict": model.module.state_dict(), "acc1": acc1}
            torch.save({**state, "optimizer": optimizer.state_dict()}, args.save)


if __name__ == "__main__":
    main()
