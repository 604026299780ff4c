"""How much slower is the loop of ``vivace train RECIPE`` than a bare loop written for the same job?

    OMP_NUM_THREADS=1 python benchmarks/train_overhead.py              # CPU: small jobs, some minutes
    python benchmarks/train_overhead.py --device cuda                  # ResNet-50 and GPT-2 124M, about 4 minutes

Both loops train their own copy of a model in one process, in turn, in windows of a few steps (recipe, bare, bare,
recipe), so that a busy machine slows both alike. The bare loop has what an expert writes: data on the device, the same
precision, layout, compilation and optimizer; no log, no validation, no checkpoints. The ratio of each group of four
windows is one reading; the result is their median with a 95 % interval (order statistics of the median). Both write
results/train_overhead.csv. On a CPU the processor time of the process is compared, too: it does not count what others
take.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from rows import Table, hardware, say

from vivace import distributed
from vivace.recipes.checking import check
from vivace.recipes.loop import steps
from vivace.recipes.models import build_model
from vivace.recipes.reading import read_recipe
from vivace.recipes.recipe import Recipe
from vivace.recipes.saving import Saver
from vivace.recipes.training import build

RESULTS = Path(__file__).parent / "results" / "train_overhead.csv"
FIELDS = (
    "job", "device", "batch", "window_steps", "readings", "bare_ms", "recipe_ms", "ratio", "ratio_low", "ratio_high",
    "processor_ratio", "processor_low", "processor_high", "note", "hardware", "torch",
)  # fmt: skip

IMAGES = ("data.train=generated", "duration=100000ep", "validation.every=1e9ba", "log.every=50ba",
          "augment.flip=none", "schedule.name=constant", "data.resident=true", "log.tensorboard=off")  # fmt: skip
TOKENS = ("data.train=generated", "duration=1e9ba", "validation.every=1e9ba", "log.every=50ba",
          "schedule.name=constant", "log.tensorboard=off")  # fmt: skip
JOBS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "cpu": {
        "cifarnet": ("cifar10-speed", (*IMAGES, "batch=16", "data.samples=1024", "augment.crop=none", "optim.name=sgd",
                                       "optim.lr=0.01", "schedule.options={}", "speed.precision=fp32")),
        "gpt-char": ("gpt-char", (*TOKENS, "data.samples=2048", "data.val_share=0", "schedule.options={}",
                                  "schedule.warmup=none")),
    },
    "cuda": {
        "resnet50": ("resnet50-imagenet", (*IMAGES, "batch=256", "data.classes=1000", "data.samples=4096",
                                           "augment.crop=none", "schedule.options={}", "optim.name=sgd",
                                           "optim.lr=0.1", "speed.fused_optimizer=true", "schedule.warmup=none")),
        "gpt2-124m": ("gpt2-124m", (*TOKENS, "batch=32", "accumulate=1", "data.samples=4096", "schedule.options={}",
                                    "schedule.warmup=none")),
    },
}  # fmt: skip


def recipe_steps(recipe: Recipe, folder: Path) -> Iterator[int]:
    training = build(recipe, folder, distributed.world({}))
    return steps(training, Saver(training))


def bare_steps(recipe: Recipe, device: torch.device) -> Iterator[int]:
    """The same model, settings and kind of data, by hand."""
    from vivace.recipes.optimizing import make_optimizer
    from vivace.recipes.sources import Key, open_source

    source = open_source(recipe, train=True)
    assert source is not None
    fetched = source[[Key(number, 0) for number in range(len(source))]]
    images = recipe.data.kind == "images"
    inputs, targets = fetched.inputs.to(device), fetched.targets.to(device)
    model = build_model(recipe, source.classes, device)
    if recipe.speed.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(recipe, model)
    if recipe.speed.compile:
        model.compile()
    mean = torch.tensor(recipe.data.mean, device=device).view(1, 3, 1, 1) * 255
    scale = 1 / (torch.tensor(recipe.data.std, device=device).view(1, 3, 1, 1) * 255)
    layout = torch.channels_last if recipe.speed.channels_last else torch.contiguous_format
    bf16 = torch.autocast(device.type, torch.bfloat16, enabled=recipe.speed.precision == "bf16")
    clip, smoothing = recipe.optim.clip_norm, recipe.optim.label_smoothing
    step = 0
    while True:
        for rows in torch.randperm(len(inputs), device=device).split(recipe.batch):
            if len(rows) < recipe.batch:
                break
            x, y = inputs[rows], targets[rows]
            if images:
                x = ((x.permute(0, 3, 1, 2).float() - mean) * scale).contiguous(memory_format=layout)
            with bf16:
                logits = model(x)
                loss = F.cross_entropy(logits.flatten(0, -2).float(), y.flatten(), label_smoothing=smoothing)
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            yield step


def window(loop: Iterator[int], count: int, device: str) -> tuple[float, float]:
    """Wall and processor seconds of so many steps."""
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(loop)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - wall, time.process_time() - processor


def median_with_interval(values: list[float]) -> tuple[float, float, float]:
    """The median, and the order statistics that enclose it with at least 95 % (sign test)."""
    ordered, count = sorted(values), len(values)
    rank = 0
    while rank < count // 2 and 2 * sum(math.comb(count, k) for k in range(rank + 1)) / 2**count <= 0.05:
        rank += 1
    low, high = (ordered[rank - 1], ordered[count - rank]) if rank else (ordered[0], ordered[-1])
    return statistics.median(ordered), low, high


def compare(name: str, device: str, rounds: int, count: int, table: Table) -> None:
    shipped, changes = JOBS[device][name]
    recipe = read_recipe(shipped, changes)
    check(recipe)
    with tempfile.TemporaryDirectory() as folder:
        loops = {"recipe": recipe_steps(recipe, Path(folder)), "bare": bare_steps(recipe, torch.device(device))}
        for loop in loops.values():
            window(loop, count, device)  # warm-up, compilation
        ratios, processor, spent = [], [], {"recipe": [], "bare": []}
        for _ in range(rounds):
            times = [(each, window(loops[each], count, device)) for each in ("recipe", "bare", "bare", "recipe")]
            sums = {each: [sum(t[i] for n, t in times if n == each) for i in (0, 1)] for each in loops}
            ratios.append(sums["recipe"][0] / sums["bare"][0])
            processor.append(sums["recipe"][1] / sums["bare"][1])
            for each in loops:
                spent[each].append(1000 * sums[each][0] / (2 * count))
    ratio, low, high = median_with_interval(ratios)
    own, own_low, own_high = median_with_interval(processor)
    figures = {"ratio": ratio, "ratio_low": low, "ratio_high": high}
    figures |= {"processor_ratio": own, "processor_low": own_low, "processor_high": own_high}
    figures |= {f"{each}_ms": statistics.median(spent[each]) for each in loops}
    table.add(job=name, device=device, batch=recipe.batch, window_steps=count, readings=rounds, **figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--jobs", nargs="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5, help="of a window")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    table = Table(options.output, FIELDS, hardware(options.device))
    for name in options.jobs or JOBS[options.device]:
        say(name)
        compare(name, options.device, options.rounds, options.steps, table)


if __name__ == "__main__":
    main()
