"""Augmentation in the loader's workers, or on the device in batches? RandAugment, MixUp and CutMix, on the same images.

    python benchmarks/augment.py --images 64 --size 64 --workers 1              # CPU, a small look
    python benchmarks/augment.py --device cuda --images 512 --size 224 --workers 8

The course concludes: RandAugment, the CPU is enough; MixUp, much better on the GPU; CutMix, turn the loop over images
into batch operations. Each row is one way to do it:

  workers   one image after the other with Pillow (RandAugment) or torch, in the processes of a DataLoader that decodes
            nothing; the images/s of the whole loader
  loop      a loop over the images of a batch, on the device
  batch     vivace.methods.augment, on the device
  v2        torchvision.transforms.v2 on the device, where it is installed

``step_share`` compares the time on the device with a step of ResNet-50 at 6,700 images/s (--step-images-per-s): what
it would add. Writes results/augment.csv: medians and quartiles over rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rows import Table, hardware, say
from torch.utils.data import DataLoader, Dataset

from vivace.methods.augment import cutmix, mixup, randaugment
from vivace.methods.augment.rand import OPERATIONS, strength_of

RESULTS = Path(__file__).parent / "results" / "augment.csv"
FIELDS = ("method", "way", "device", "images", "size", "workers", "rounds", "ms", "ms_low", "ms_high", "images_per_s",
          "step_share", "note", "hardware", "torch")  # fmt: skip
CLASSES, OPERATIONS_EACH, MAGNITUDE = 1000, 5, 9  # the course: RandAugment(5, 9)


class WithPillow(Dataset[Any]):
    """Bytes in, bytes out, by Pillow: what a worker does after decoding."""

    def __init__(self, images: np.ndarray, operations: int) -> None:
        self.images, self.operations = images, operations

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> torch.Tensor:
        from PIL import Image

        image = Image.fromarray(self.images[index])
        for _ in range(self.operations):
            image = by_pillow(image, random.choice(list(OPERATIONS)), random.choice((-1, 1)))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def by_pillow(image: Any, name: str, sign: int) -> Any:
    from PIL import Image, ImageEnhance, ImageOps

    by = strength_of(name, MAGNITUDE, image.height, image.width)
    signed = sign * by
    moves = {"shear_x": (1, signed, 0, 0, 1, 0), "shear_y": (1, 0, 0, signed, 1, 0),
             "translate_x": (1, 0, signed, 0, 1, 0), "translate_y": (1, 0, 0, 0, 1, signed)}  # fmt: skip
    if name in moves:
        return image.transform(image.size, Image.Transform.AFFINE, moves[name])
    enhance = {"brightness": ImageEnhance.Brightness, "color": ImageEnhance.Color, "contrast": ImageEnhance.Contrast,
               "sharpness": ImageEnhance.Sharpness}  # fmt: skip
    if name in enhance:
        return enhance[name](image).enhance(1 + signed)
    others: dict[str, Callable[[], Any]] = {
        "identity": lambda: image, "rotate": lambda: image.rotate(signed), "equalize": lambda: ImageOps.equalize(image),
        "posterize": lambda: ImageOps.posterize(image, int(by)), "solarize": lambda: ImageOps.solarize(image, by),
        "autocontrast": lambda: ImageOps.autocontrast(image),
    }  # fmt: skip
    return others[name]()


class Mixed(Dataset[Any]):
    """MixUp of one image with another in a worker: numbers instead of bytes, four times as many to send."""

    def __init__(self, images: np.ndarray) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        share = np.random.beta(2, 2)
        other = random.randrange(len(self.images))
        mixed = share * self.images[index].astype(np.float32) + (1 - share) * self.images[other].astype(np.float32)
        target = torch.zeros(CLASSES)
        target[index % CLASSES] += share
        target[other % CLASSES] += 1 - share
        return torch.from_numpy(mixed.astype(np.float32)).permute(2, 0, 1), target


def mixup_in_a_loop(images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    hot = torch.nn.functional.one_hot(targets, CLASSES).float()
    partner = torch.randperm(len(images)).tolist()
    mixed, shares = torch.empty_like(images), torch.empty_like(hot)
    for row, other in enumerate(partner):
        share = float(np.random.beta(2, 2))
        mixed[row] = share * images[row] + (1 - share) * images[other]
        shares[row] = share * hot[row] + (1 - share) * hot[other]
    return mixed, shares


def cutmix_in_a_loop(images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    hot = torch.nn.functional.one_hot(targets, CLASSES).float()
    partner, (height, width) = torch.randperm(len(images)).tolist(), images.shape[-2:]
    mixed, shares = images.clone(), torch.empty_like(hot)
    for row, other in enumerate(partner):
        side = (1 - float(np.random.beta(1, 1))) ** 0.5
        y, x = random.uniform(0, height), random.uniform(0, width)
        top, bottom = (round(min(max(y + sign * side * height / 2, 0), height)) for sign in (-1, 1))
        left, right = (round(min(max(x + sign * side * width / 2, 0), width)) for sign in (-1, 1))
        mixed[row, :, top:bottom, left:right] = images[other, :, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (height * width)
        shares[row] = share * hot[row] + (1 - share) * hot[other]
    return mixed, shares


def ways(device: torch.device, count: int, size: int, workers: int) -> dict[tuple[str, str], Callable[[], Any]]:
    """Each as a function that augments all images once; RandAugment in a loop would be Pillow's, on the CPU."""
    bytes_ = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    small = torch.from_numpy(bytes_).permute(0, 3, 1, 2).to(device)
    large, targets = small.float(), torch.arange(count, device=device) % CLASSES

    def through(dataset: Dataset[Any]) -> Callable[[], Any]:
        persistent = workers > 0
        loader = DataLoader(dataset, batch_size=min(64, count), num_workers=workers, persistent_workers=persistent)
        return lambda: [None for _ in loader]

    found: dict[tuple[str, str], Callable[[], Any]] = {
        ("randaugment", "workers"): through(WithPillow(bytes_, OPERATIONS_EACH)),
        ("nothing", "workers"): through(WithPillow(bytes_, 0)),
        ("randaugment", "batch"): lambda: randaugment(small, OPERATIONS_EACH, MAGNITUDE),
        ("mixup", "workers"): through(Mixed(bytes_)),
        ("mixup", "loop"): lambda: mixup_in_a_loop(large, targets),
        ("mixup", "batch"): lambda: mixup(large, targets, CLASSES, 2.0),
        ("cutmix", "loop"): lambda: cutmix_in_a_loop(large, targets),
        ("cutmix", "batch"): lambda: cutmix(large, targets, CLASSES, 1.0),
    }
    try:
        from torchvision.transforms import v2
    except ImportError:
        return found
    augment, mix, cut = (
        v2.RandAugment(OPERATIONS_EACH, MAGNITUDE), v2.MixUp(alpha=2.0, num_classes=CLASSES),
        v2.CutMix(num_classes=CLASSES),
    )  # fmt: skip
    found["randaugment", "v2"] = lambda: [augment(image) for image in small]  # one draw for a batch: so one by one
    found["mixup", "v2"] = lambda: mix(large, targets)
    found["cutmix", "v2"] = lambda: cut(large, targets)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--step-images-per-s", type=float, default=6700.0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = torch.device(options.device)
    table = Table(options.output, FIELDS, hardware(options.device))
    found = ways(device, options.images, options.size, options.workers)
    if not any(way == "v2" for _, way in found):
        say("torchvision is not installed: no rows of v2")
    times: dict[tuple[str, str], list[float]] = {name: [] for name in found}
    for number in range(options.rounds + 1):  # the first starts the workers
        for name, work in found.items():
            began = time.perf_counter()
            work()
            if options.device == "cuda":
                torch.cuda.synchronize()
            if number:
                times[name].append(1000 * (time.perf_counter() - began))
    for (method, way), spent in times.items():
        median, quarters = statistics.median(spent), statistics.quantiles(spent, n=4)
        step_ms = 1000 * options.images / options.step_images_per_s
        table.add(method=method, way=way, device="cpu" if way == "workers" else options.device, images=options.images,
                  size=options.size, workers=options.workers if way == "workers" else 0, rounds=options.rounds,
                  ms=median, ms_low=quarters[0], ms_high=quarters[2], images_per_s=1000 * options.images / median,
                  step_share=median / step_ms if options.device == "cuda" and way != "workers" else "")  # fmt: skip


if __name__ == "__main__":
    main()
