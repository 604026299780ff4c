"""Train a ResNet on images: the reference trainer of the DLO-JZ course, written afresh and naive on purpose.

CPU by default, float32, a plain loop. Making it fast is the exercise: by hand, or with vivace.

    python examples/dlojz.py --model resnet18 --image-size 32 -b 8 --test --test-nsteps 3 --num-workers 0
    python examples/dlojz.py --device cuda --model resnet50 -b 256 --test
    python examples/dlojz.py --device cuda --data path/to/imagenet -e 10
"""

import argparse
import itertools
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader
from torchmetrics.aggregation import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout runs without being installed

from vivace import Chronometer
from vivace.errors import UserError
from vivace.train.data import GeneratedImages, open_images, train_and_val_paths
from vivace.train.data.transforms import (
    CenterCrop,
    Compose,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToTensor,
)
from vivace.train.models import resnet

## import ... add here

SEED = 123
VAL_BATCH_SIZE = 256
VAL_TEST_STEPS = 20  # batches of a validation with --test
IMAGENET_TRAIN, IMAGENET_VAL = 1_281_167, 50_000  # images


def build_parser():
    parser = argparse.ArgumentParser(description="Train a ResNet on images")
    flag = argparse.BooleanOptionalAction

    parser.add_argument("-b", "--batch-size", default=128, type=int, help="batch size per GPU")
    parser.add_argument("-e", "--epochs", default=1, type=int, help="number of epochs to run")
    parser.add_argument("--image-size", default=224, type=int, help="side of the images, in pixels")
    parser.add_argument("--lr", default=0.1, type=float, help="largest learning rate of the cycle")
    parser.add_argument("--wd", default=0.0, type=float, help="weight decay")
    parser.add_argument("--mom", default=0.9, type=float, help="momentum")
    parser.add_argument("--test", default=False, action="store_true", help="short timed run")
    parser.add_argument("--test-nsteps", default=50, type=int, help="steps of a run with --test")
    parser.add_argument("--num-workers", default=10, type=int, help="loader processes, 0: load in this one")
    parser.add_argument("--persistent-workers", default=True, action=flag, help="keep them between epochs")
    parser.add_argument("--pin-memory", default=True, action=flag, help="load into page-locked memory")
    parser.add_argument("--non-blocking", default=True, action=flag, help="copy to the GPU asynchronously")
    parser.add_argument("--prefetch-factor", default=3, type=int, help="batches ahead per loader process")
    parser.add_argument("--drop-last", default=False, action=flag, help="leave out an incomplete last batch")

    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--model", default="resnet152", choices=resnet.NAMES)
    parser.add_argument(
        "--data",
        default="generated",
        help="generated (images made on the fly), a folder with one sub-folder per class, or a .parquet file "
        "with columns image and label; train/ and val/ (train.parquet and val.parquet) are found by name",
    )
    parser.add_argument("--val-data", default=None, help="validation folder or file, where it is elsewhere")
    parser.add_argument("--dataset-size", default=IMAGENET_TRAIN, type=int, help="training images to generate")

    ## Add parser arguments
    return parser


def world_size():
    """Processes of the job. Each trains alone for now: only the banner and the batch size know the others."""
    return int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)


def build_datasets(args):
    """Training and validation data."""
    to_normal = [ToTensor(), Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))]
    if args.data == "generated":  # made at the right size: nothing to crop
        val_size = max(1, round(args.dataset_size * IMAGENET_VAL / IMAGENET_TRAIN))
        train = GeneratedImages(args.dataset_size, args.image_size, seed=SEED, transform=Compose(to_normal))
        val = GeneratedImages(val_size, args.image_size, seed=SEED + 1, transform=Compose(to_normal))
        return train, val

    train_transform = Compose([RandomResizedCrop(args.image_size), RandomHorizontalFlip(), *to_normal])
    side = round(args.image_size * 256 / 224)
    val_transform = Compose([Resize((side, side)), CenterCrop(args.image_size), *to_normal])
    train_path, val_path = train_and_val_paths(args.data)
    val_path = args.val_data or val_path
    if val_path is None:
        raise UserError(f"no validation data found beside {train_path}", hint="name it with --val-data")
    train = open_images(train_path, train_transform)
    val = open_images(val_path, val_transform, classes=getattr(train, "classes", None))
    return train, val


def build_loader(dataset, batch_size, args, shuffle, drop_last):
    options = {}
    if args.num_workers > 0:  # without processes the DataLoader refuses both
        options = {"persistent_workers": args.persistent_workers, "prefetch_factor": args.prefetch_factor}
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        num_workers=args.num_workers,
        pin_memory=args.pin_memory and args.device != "cpu",  # pages are locked for the copy to a GPU
        **options,
    )


def is_log_step(i, n_batch):
    """Ten times per epoch, the last step included; every step of an epoch of fewer than ten."""
    return (i + 1) * 10 // n_batch > i * 10 // n_batch


def train(args):
    device = torch.device(args.device)
    chrono = Chronometer(device)
    chrono.start()

    train_dataset, val_dataset = build_datasets(args)
    num_classes = train_dataset.num_classes

    # Model
    model = resnet.by_name(args.model, num_classes)
    model = model.to(device)
    print(f"model: {args.model.replace('resnet', 'Resnet-')}")
    print(f"number of parameters: {sum(p.numel() for p in model.parameters())}")

    # Batch size
    num_replica = world_size()
    mini_batch_size = args.batch_size
    global_batch_size = mini_batch_size * num_replica
    print(f"global batch size: {global_batch_size} - mini batch size: {mini_batch_size}")

    # Loss, optimizer, metrics
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = SGD(model.parameters(), args.lr, momentum=args.mom, weight_decay=args.wd)
    print(f"Optimizer: {optimizer}")
    train_metrics = {
        "loss": MeanMetric().to(device),
        "acc": MulticlassAccuracy(num_classes=num_classes, average="micro").to(device),
    }
    val_metrics = {
        "loss": MeanMetric().to(device),
        "acc": MulticlassAccuracy(num_classes=num_classes, average="micro").to(device),
    }

    # Data loaders: validation keeps every image
    print(
        f"DATALOADER {args.num_workers} {args.persistent_workers} {args.pin_memory} {args.non_blocking} "
        f"{args.prefetch_factor} {args.drop_last}"
    )
    train_loader = build_loader(train_dataset, mini_batch_size, args, shuffle=True, drop_last=args.drop_last)
    val_loader = build_loader(val_dataset, VAL_BATCH_SIZE, args, shuffle=False, drop_last=False)
    n_batch = len(train_loader)
    if n_batch == 0:
        raise UserError("the data does not fill one batch", hint="use --no-drop-last or a smaller -b")

    # Learning rate scheduler: it needs the number of batches
    scheduler = OneCycleLR(optimizer, max_lr=args.lr, steps_per_epoch=n_batch, epochs=args.epochs)

    # Training
    csteps = 0
    for epoch in range(args.epochs):
        if args.test and csteps >= args.test_nsteps:
            break
        if args.test:
            chrono.next_iter()
        chrono.tac_time(clear=True)

        for i, (images, labels) in enumerate(train_loader):
            csteps = i + 1 + epoch * n_batch
            last_test_step = args.test and csteps == args.test_nsteps
            if i == 0:
                print(f"image batch shape : {images.size()}")
            images = images.to(device, non_blocking=args.non_blocking)
            labels = labels.to(device, non_blocking=args.non_blocking)

            if args.test:
                chrono.forward()
            optimizer.zero_grad()
            outputs = model(images)
            loss = criterion(outputs, labels)

            if args.test:
                chrono.backward()
            loss.backward()
            optimizer.step()

            train_metrics["loss"].update(loss)
            train_metrics["acc"].update(outputs, labels)
            if args.test:
                chrono.update()

            if is_log_step(i, n_batch):
                train_loss = train_metrics["loss"].compute()
                train_acc = train_metrics["acc"].compute()
                for metric in train_metrics.values():
                    metric.reset()
                print(
                    f"Epoch [{epoch + 1}/{args.epochs}], Step [{i + 1}/{n_batch}], "
                    f"Time: {chrono.tac_time():.3f}, Loss: {train_loss:.4f}, Acc:{train_acc:.4f}"
                )

            scheduler.step()

            if i == n_batch - 1 or last_test_step:
                chrono.validation()
                steps_run = validate(model, val_loader, criterion, val_metrics, device, args)
                chrono.validation(steps=steps_run)
                val_loss, val_acc = val_metrics["loss"].compute(), val_metrics["acc"].compute()
                if not args.test:  # 20 batches tell the time of a validation, not its result
                    print("##EVALUATION STEP##")
                    print(
                        f"Epoch [{epoch + 1}/{args.epochs}], "
                        f"Validation Loss: {val_loss:.4f}, Validation Accuracy: {val_acc:.4f}"
                    )
                    print(f">>> Validation complete in: {chrono.val_time}")
                for metric in val_metrics.values():
                    metric.reset()

            if last_test_step:
                break
            if args.test:
                chrono.next_iter()

    # Report: the times of the steps with --test only
    chrono.stop()
    chrono.display(val_steps=len(val_loader) if args.test else None)
    print(f">>> Number of batch per epoch: {n_batch}")
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    print(f"Max Memory Allocated {memory} Bytes")

    # Checkpoint
    if not args.test:
        path = Path("checkpoints") / f"{os.environ.get('SLURM_JOBID', 'local')}_{global_batch_size}.pt"
        path.parent.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path)
        print(f"Last epoch checkpointed to {path}")


@torch.no_grad()
def validate(model, val_loader, criterion, metrics, device, args):
    """Fill the metrics over the validation data (20 batches of it with --test); returns the batches run."""
    model.eval()
    steps = 0
    for images, labels in itertools.islice(val_loader, VAL_TEST_STEPS if args.test else None):
        images = images.to(device, non_blocking=args.non_blocking)
        labels = labels.to(device, non_blocking=args.non_blocking)
        outputs = model(images)
        loss = criterion(outputs, labels)
        metrics["loss"].update(loss, weight=len(labels))  # the last batch may be smaller
        metrics["acc"].update(outputs, labels)
        steps += 1
    model.train()
    return steps


def main():
    parser = build_parser()
    args = parser.parse_args()
    if args.test_nsteps < 1:
        parser.error("argument --test-nsteps: at least 1 step")

    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)

    n_nodes = int(os.environ.get("SLURM_NNODES") or 1)
    print(">>> Training on ", n_nodes, " nodes and ", world_size(), " processes")
    try:
        train(args)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
