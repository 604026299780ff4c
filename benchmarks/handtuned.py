"""What an expert writes: the loops that `vivace tune` is held against. Torch as it comes, no vivace in the loop.

    python benchmarks/handtuned.py resnet -b 256
    python benchmarks/handtuned.py resnet -b 256 --data loader
    python benchmarks/handtuned.py gpt --layers 12 --width 768 --heads 12 --length 1024 -b 16 --vocab-size 50304

Models, data sets and loaders are those of examples/dlojz.py and examples/gpt.py, imported; only the loop is another.

``resnet``: TF32, cudnn.benchmark, bf16 autocast, channels_last, fused SGD, compile. ``--data gpu`` (the default) is the
reference loop: one batch, already on the GPU, no metrics and no schedule, so that no loader holds it back.
``--data loader`` is what the example does at each step (its DataLoader, its metrics, its schedule), tuned by hand:
metrics without their checks, which read from the GPU.

``gpt``: TF32, bf16 autocast, fused AdamW, compile, batches from pinned memory. The rest is the example's own loop.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))


def main() -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    which, flags = sys.argv[1], sys.argv[2:]
    {"resnet": resnet, "gpt": gpt}[which](flags)


def autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    """bf16 on a GPU. A CPU without bf16 units would be many times slower, and an expert knows."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if device != "cpu" else contextlib.nullcontext()


# --- ResNet ---


def resnet(flags: list[str]) -> None:
    import dlojz

    parser = dlojz.build_parser()
    parser.set_defaults(data="gpu")
    args = parser.parse_args(flags)
    torch.manual_seed(dlojz.SEED)
    batches = one_batch(args) if args.data == "gpu" else None
    args.data = "generated"

    model = dlojz.resnet.by_name(args.model, 1000).to(args.device, memory_format=torch.channels_last)
    model.compile()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.mom, weight_decay=args.wd, fused=True)
    after_step = Bookkeeping(optimizer, args) if batches is None else None
    for images, labels in batches or loaded(dlojz, args):
        with autocast(args.device):
            outputs = model(images)
            loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after_step is not None:
            after_step(loss, outputs, labels)


def one_batch(args: argparse.Namespace) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=args.device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (args.batch_size,), device=args.device)
    for _ in range(args.test_nsteps if args.test else 10**9):
        yield images, labels


def loaded(dlojz: Any, args: argparse.Namespace) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    train, _ = dlojz.build_datasets(args)
    args.num_workers = min(args.num_workers, 16)
    for number, (images, labels) in enumerate(dlojz.build_loader(train, args.batch_size, args, True, args.drop_last)):
        if args.test and number == args.test_nsteps:
            return
        images = images.to(args.device, non_blocking=True).to(memory_format=torch.channels_last)
        yield images, labels.to(args.device, non_blocking=True)


class Bookkeeping:
    """The example's schedule and metrics."""

    def __init__(self, optimizer: torch.optim.Optimizer, args: argparse.Namespace) -> None:
        from torchmetrics.aggregation import MeanMetric
        from torchmetrics.classification import MulticlassAccuracy

        steps = -(-args.dataset_size // args.batch_size) * args.epochs
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=steps)
        self.loss = MeanMetric(nan_strategy="disable").to(args.device)
        self.accuracy = MulticlassAccuracy(num_classes=1000, average="micro", validate_args=False).to(args.device)

    def __call__(self, loss: torch.Tensor, outputs: torch.Tensor, labels: torch.Tensor) -> None:
        self.loss.update(loss.detach())
        self.accuracy.update(outputs.detach(), labels)
        self.schedule.step()


# --- GPT ---


def gpt(flags: list[str]) -> None:
    import gpt as script

    args = script.build_parser().parse_args(flags)
    torch.manual_seed(args.seed)
    data, vocab_size = script.load_tokens(args)
    data = data[: int(0.9 * len(data))]
    model = script.GPT(vocab_size, args.length, args.layers, args.width, args.heads).to(args.device)
    model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = script.learning_rate(step, args)
        x, y = pinned_batch(data, args)
        with autocast(args.device):
            _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % args.log_interval == 0:
            print(f"step {step}: loss {loss.item():.4f}")


def pinned_batch(data: torch.Tensor, args: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(data) - args.length, (args.batch_size,))
    x = torch.stack([data[i : i + args.length] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + args.length] for i in starts])
    if args.device == "cpu":
        return x, y
    return x.pin_memory().to(args.device, non_blocking=True), y.pin_memory().to(args.device, non_blocking=True)


if __name__ == "__main__":
    main()
