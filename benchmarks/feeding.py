"""Does the loader keep up? Training from JPEG files of 500 x 375 pixels against the same images kept on the device.

    python benchmarks/feeding.py --images 64 --batch 16 --steps 6 --size 64 --model resnet18 --workers 0 1      # CPU
    python benchmarks/feeding.py --images 20000 --batch 256 --steps 200 --workers 8 12 16                       # GPU

Rows: ``loader`` is the feed alone (read, decode, random resized crop, to the device), ``files`` a training from it,
``resident`` the same training with images decoded once. ``share`` is files / resident; where it is below 0.95, the
row of the loader names the limit. Images are made up: smooth noise, saved at quality 90. Writes results/feeding.csv.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rows import Table, hardware, say

RESULTS = Path(__file__).parent / "results" / "feeding.csv"
FIELDS = (
    "what", "model", "decoder", "workers", "images", "mean_kb", "image_size", "batch", "steps", "images_per_s", "share",
    "note", "hardware", "torch",
)  # fmt: skip


def write_images(folder: Path, count: int, different: int = 512) -> float:
    """Files of two classes; the mean size in kB. Only so many are different: the others are links to them."""
    from PIL import Image

    draws, made = np.random.default_rng(0), []
    for number in range(count):
        path = folder / "ab"[number % 2] / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < different:
            small = draws.integers(0, 256, (47, 63, 3), dtype=np.uint8)
            Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
            made.append(path)
        else:
            path.hardlink_to(made[number % len(made)])
    return float(np.mean([path.stat().st_size for path in made])) / 1000


def settings(options: argparse.Namespace, folder: Path, workers: int, resident: bool) -> dict[str, object]:
    gpu = options.device == "cuda"
    return {
        "data.train": folder / "images", "data.image_size": options.size, "data.workers": workers,
        "batch": options.batch, "duration": f"{options.steps}ba", "log.every": f"{max(1, options.steps // 10)}ba",
        "model.name": options.model,
        "data.resident": str(resident).lower(), "data.decoder": "pillow" if resident else options.decoder,
        "optim.name": "sgd", "optim.lr": 0.01, "schedule.name": "constant", "schedule.options": "{}",
        "schedule.warmup": "none", "validation.every": "1e9ba", "speed.precision": "bf16" if gpu else "fp32",
        "speed.compile": str(gpu).lower(), "speed.fused_optimizer": str(gpu).lower(), "log.tensorboard": "off",
    }  # fmt: skip


def trained(options: argparse.Namespace, folder: Path, workers: int, resident: bool) -> float:
    changes = settings(options, folder, workers, resident)
    sets = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "vivace", "train", "resnet50-imagenet", "-o", output, *sets]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (record,) = Path(output).glob("*/trained.json")
        return float(json.loads(record.read_text())["samples_per_s"])


def fed(options: argparse.Namespace, folder: Path, workers: int) -> float:
    """The feed alone, from its second batch on."""
    import torch

    from vivace import distributed
    from vivace.recipes.course import Course
    from vivace.recipes.feeding import Feed
    from vivace.recipes.reading import read_recipe
    from vivace.recipes.sources import open_source

    changes = settings(options, folder, workers, resident=False)
    recipe = read_recipe("resnet50-imagenet", [f"{name}={value}" for name, value in changes.items()])
    source = open_source(recipe, train=True)
    assert source is not None
    course = Course(len(source), None, recipe.batch, options.size)
    feed = Feed(recipe, source, course, distributed.world({}), torch.device(options.device))
    began, count = None, 0
    for batch in feed.batches(0, options.steps):
        if began is None:
            began = time.perf_counter()
        else:
            count += len(batch.targets)
    if options.device == "cuda":
        torch.cuda.synchronize()
    assert began is not None
    return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--workers", nargs="*", type=int, default=[8, 12, 16])
    parser.add_argument("--decoder", choices=["pillow", "torchvision", "nvjpeg"], default="pillow")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    import torch

    options.device = "cuda" if torch.cuda.is_available() else "cpu"
    table = Table(options.output, FIELDS, hardware(options.device))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say(f"writing {options.images} images")
        size = write_images(folder / "images", options.images)
        same = {"model": options.model, "images": options.images, "mean_kb": size, "image_size": options.size,
                "batch": options.batch, "steps": options.steps}  # fmt: skip
        resident = trained(options, folder, max(options.workers), resident=True)
        table.add(what="resident", decoder="pillow", images_per_s=resident, **same)
        for workers in options.workers:
            row = {"decoder": options.decoder, "workers": workers, **same}
            table.add(what="loader", images_per_s=fed(options, folder, workers), **row)
            files = trained(options, folder, workers, resident=False)
            table.add(what="files", images_per_s=files, share=files / resident, **row)


if __name__ == "__main__":
    main()
