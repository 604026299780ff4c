"""The twin of dlojz.py for several GPUs, with DistributedDataParallel written by hand as the DLO-JZ course does it.

One process per GPU (gloo and a share of the cores on a CPU). ``-b`` is the batch per process. What differs from
dlojz.py is marked with DDP. `vivace run --ranks 2 --with ddp -- python dlojz.py` does without this file.

    torchrun --standalone --nproc-per-node 2 examples/dlojz_ddp.py --model resnet18 --image-size 32 -b 4 \
        --num-workers 0 --dataset-size 64
    vivace submit --cluster jean-zay-h100 --gpus 8 -- python examples/dlojz_ddp.py --device cuda -b 128 --test
"""

import argparse
import contextlib
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from dlojz import SEED, VAL_BATCH_SIZE, build_datasets, build_parser, is_log_step, validate
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from torchmetrics.aggregation import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from vivace import Chronometer
from vivace import distributed as idr_torch
from vivace.errors import UserError
from vivace.train.models import resnet
from vivace.train.models.sync_batch_norm import synchronised


def build_ddp_parser():
    parser = build_parser()
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--sync-bn", default=True, action=flag, help="batch norm over the batches of all processes")
    parser.add_argument("--find-unused-parameters", default=False, action=flag, help="DDP looks for them at each step")
    parser.add_argument("--accumulate", default=1, type=int, help="batches per update; only the last one is exchanged")
    parser.add_argument("--heads", default=1, type=int, help="classifiers, one of them drawn at each step")
    return parser


class RandomHead(nn.Module):
    """Several classifiers on one body. A step uses one of them: the others get no gradient."""

    def __init__(self, model, heads):
        super().__init__()
        sizes = model.fc.in_features, model.fc.out_features
        self.heads = nn.ModuleList([model.fc, *(nn.Linear(*sizes) for _ in range(heads - 1))])
        self.body, self.body.fc = model, nn.Identity()

    def forward(self, images):
        return random.choice(self.heads)(self.body(images))


def build_ddp_loader(dataset, batch_size, args, sampler=None, drop_last=False):
    options = {}
    if args.num_workers > 0:  # without processes the DataLoader refuses both
        options = {"persistent_workers": args.persistent_workers, "prefetch_factor": args.prefetch_factor}
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        drop_last=drop_last,
        num_workers=args.num_workers,
        pin_memory=args.pin_memory and args.device != "cpu",
        **options,
    )


def train(args):
    # DDP: one process per GPU, which is its own
    on_gpu = args.device != "cpu"
    idr_torch.init_process_group("nccl" if on_gpu else "gloo")
    device = idr_torch.device if on_gpu else torch.device("cpu")
    chrono = Chronometer(device)
    chrono.start()

    train_dataset, val_dataset = build_datasets(args)
    num_classes = train_dataset.num_classes

    # Model
    model = resnet.by_name(args.model, num_classes)
    if args.heads > 1:
        model = RandomHead(model, args.heads)
    model = model.to(device)
    if idr_torch.rank == 0:
        print(f"model: {args.model.replace('resnet', 'Resnet-')}")
        print(f"number of parameters: {sum(p.numel() for p in model.parameters())}")
    # DDP: statistics of the whole batch, then gradients averaged during backward
    if args.sync_bn:
        model = synchronised(model, device)
    model = DistributedDataParallel(
        model, device_ids=[device] if on_gpu else None, find_unused_parameters=args.find_unused_parameters
    )

    # Batch size
    num_replica = idr_torch.size
    mini_batch_size = args.batch_size
    global_batch_size = mini_batch_size * num_replica
    if idr_torch.rank == 0:
        print(f"global batch size: {global_batch_size} - mini batch size: {mini_batch_size}")

    # Loss, optimizer, metrics. DDP: torchmetrics reduces over the processes in compute(), so all must call it
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = SGD(model.parameters(), args.lr, momentum=args.mom, weight_decay=args.wd)
    if idr_torch.rank == 0:
        print(f"Optimizer: {optimizer}")
    train_metrics, val_metrics = (
        {
            "loss": MeanMetric().to(device),
            "acc": MulticlassAccuracy(num_classes=num_classes, average="micro").to(device),
        }
        for _ in range(2)
    )

    # DDP: each process loads its share. The training sampler repeats images where the shares are uneven;
    # validation must count each image once, so its shares may differ by one.
    if idr_torch.rank == 0:
        print(
            f"DATALOADER {args.num_workers} {args.persistent_workers} {args.pin_memory} {args.non_blocking} "
            f"{args.prefetch_factor} {args.drop_last}"
        )
    sampler = DistributedSampler(train_dataset, num_replica, idr_torch.rank, seed=SEED, drop_last=args.drop_last)
    train_loader = build_ddp_loader(train_dataset, mini_batch_size, args, sampler, args.drop_last)
    val_share = Subset(val_dataset, range(idr_torch.rank, len(val_dataset), num_replica))
    val_loader = build_ddp_loader(val_share, max(1, VAL_BATCH_SIZE // num_replica), args)
    n_batch = len(train_loader)
    if n_batch == 0:
        raise UserError("the data does not fill one batch", hint="use --no-drop-last or a smaller -b")

    # Learning rate scheduler: it needs the number of updates
    updates = -(-n_batch // args.accumulate)
    scheduler = OneCycleLR(optimizer, max_lr=args.lr, steps_per_epoch=updates, epochs=args.epochs)

    # Training
    csteps = 0
    for epoch in range(args.epochs):
        if args.test and csteps >= args.test_nsteps:
            break
        sampler.set_epoch(epoch)  # DDP: another order in each epoch
        if args.test:
            chrono.next_iter()
        if idr_torch.rank == 0:
            chrono.tac_time(clear=True)

        for i, (images, labels) in enumerate(train_loader):
            csteps = i + 1 + epoch * n_batch
            last_test_step = args.test and csteps == args.test_nsteps
            is_update = (i + 1) % args.accumulate == 0 or i == n_batch - 1
            if i == 0 and idr_torch.rank == 0:
                print(f"image batch shape : {images.size()}")
            images = images.to(device, non_blocking=args.non_blocking)
            labels = labels.to(device, non_blocking=args.non_blocking)

            if args.test:
                chrono.forward()
            # DDP: while gradients accumulate, nothing is exchanged. no_sync must hold the forward pass too
            with contextlib.nullcontext() if is_update else model.no_sync():
                outputs = model(images)
                loss = criterion(outputs, labels)

                if args.test:
                    chrono.backward()
                (loss / args.accumulate).backward()
            if is_update:
                optimizer.step()
                optimizer.zero_grad()

            train_metrics["loss"].update(loss)
            train_metrics["acc"].update(outputs, labels)
            if args.test:
                chrono.update()

            if is_log_step(i, n_batch):
                train_loss = train_metrics["loss"].compute()
                train_acc = train_metrics["acc"].compute()
                for metric in train_metrics.values():
                    metric.reset()
                if idr_torch.rank == 0:
                    print(
                        f"Epoch [{epoch + 1}/{args.epochs}], Step [{i + 1}/{n_batch}], "
                        f"Time: {chrono.tac_time():.3f}, Loss: {train_loss:.4f}, Acc:{train_acc:.4f}"
                    )

            if is_update:
                scheduler.step()

            if i == n_batch - 1 or last_test_step:
                chrono.validation()
                # DDP: the model inside, since the processes may have different numbers of batches
                steps_run = validate(model.module, val_loader, criterion, val_metrics, device, args)
                chrono.validation(steps=steps_run)
                val_loss, val_acc = val_metrics["loss"].compute(), val_metrics["acc"].compute()
                if not args.test and idr_torch.rank == 0:
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

    # Report
    chrono.stop()
    if idr_torch.rank == 0:
        chrono.display(val_steps=len(val_loader) if args.test else None)
        print(f">>> Number of batch per epoch: {n_batch}")
        memory = torch.cuda.max_memory_allocated(device) if on_gpu else 0
        print(f"Max Memory Allocated {memory} Bytes")

    # Checkpoint. DDP: one process writes, and the names are those of the model inside
    if not args.test and idr_torch.rank == 0:
        path = Path("checkpoints") / f"{os.environ.get('SLURM_JOBID', 'local')}_{global_batch_size}.pt"
        path.parent.mkdir(exist_ok=True)
        torch.save(model.module.state_dict(), path)
        print(f"Last epoch checkpointed to {path}")
    # DDP: the model goes before its group: gloo may hang where the model is the last to hold it (pytorch issue 56297)
    del model
    torch.distributed.destroy_process_group()


def main():
    parser = build_ddp_parser()
    args = parser.parse_args()
    if args.test_nsteps < 1 or args.accumulate < 1:
        parser.error("arguments --test-nsteps and --accumulate: at least 1")

    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)

    if idr_torch.rank == 0:
        print(">>> Training on ", idr_torch.num_nodes, " nodes and ", idr_torch.size, " processes")
    try:
        train(args)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
