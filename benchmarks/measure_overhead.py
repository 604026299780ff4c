"""What measuring costs: steps of a 300-module network with vivace's hooks in place and without, in one process.

    python benchmarks/measure_overhead.py --device cpu
    python benchmarks/measure_overhead.py --device cuda

Short blocks of steps alternate between torch as it is and torch as vivace patches it (recorder armed, timed window
open, attendant thread running); their order within a pair alternates too. Nothing else differs, so the ratio is the
cost of measuring. The figure is the median over pairs with its 95 % bootstrap interval. The profiler window, which
vivace opens after the timed one, is not in it. Appends to results/measure_overhead.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as optimizer_module
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vivace.measure.inside.attendant import Attendant
from vivace.measure.inside.install import install
from vivace.measure.inside.session import Session
from vivace.protocol.request import ProcessRequest

HERE = Path(__file__).parent
PATCHED = (
    (nn.Module, ("__call__", "train")),
    (nn.Sequential, ("__call__",)),  # the root's class: the only one that is watched once the window is open
    (_BaseDataLoaderIter, ("__next__",)),
    (DataLoader, ("__iter__",)),
    (torch.autograd, ("backward", "grad")),
    (torch.amp.GradScaler, ("scale", "step")),
    (torch.Tensor, ("to", "cuda")),
)
FIELDS = (
    "device", "modules", "step_ms_without", "overhead_us_per_step", "ratio_median", "ratio_low", "ratio_high", "pairs",
    "block_steps", "torch", "hardware",
)  # fmt: skip


class Switch:
    """Puts torch as it is, or as vivace patches it, in place."""

    def __init__(self, folder: str) -> None:
        plain = self._state()
        request = ProcessRequest(folder=folder, steps=10**9, count_flops=False, warmup_steps=2)
        self.session: Session = install(request)
        self._states = {False: plain}

    def remember_measuring(self) -> None:
        """Once the window is open: what is in place now is what measuring costs."""
        self._states[True] = self._state()

    def _state(self) -> tuple[dict[tuple[Any, str], Any], dict, dict]:
        functions = {(owner, name): getattr(owner, name) for owner, names in PATCHED for name in names}
        pre, post = optimizer_module._global_optimizer_pre_hooks, optimizer_module._global_optimizer_post_hooks
        return functions, dict(pre), dict(post)

    def set(self, measuring: bool) -> None:
        functions, pre, post = self._states[measuring]
        for (owner, name), function in functions.items():
            if getattr(owner, name) is not function:
                setattr(owner, name, function)
        for target, hooks in (
            (optimizer_module._global_optimizer_pre_hooks, pre),
            (optimizer_module._global_optimizer_post_hooks, post),
        ):
            target.clear()
            target.update(hooks)
        self._attend(measuring)

    def _attend(self, measuring: bool) -> None:
        """The attendant thread is part of the cost: it runs in the blocks that measure, and in no other."""
        assert self.session.attendant is not None
        self.session.attendant.done.set()
        if measuring:
            old = self.session.attendant
            self.session.attendant = Attendant(old.folder, old.progress, old.sample, old.on_stop)
            self.session.attendant.start()


class Training:
    """The usual loop over a network of 300 modules and their container."""

    def __init__(self, device: str, width: int, batch_size: int) -> None:
        torch.manual_seed(0)
        layers = [m for _ in range(100) for m in (nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU())]
        self.device = device
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.criterion = nn.MSELoss()
        self.loader = DataLoader(TensorDataset(torch.randn(100_000, width)), batch_size)
        self.batches = iter(self.loader)

    def step(self) -> None:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        inputs = batch[0].to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        self.criterion(self.model(inputs), inputs).backward()
        self.optimizer.step()

    def block_ms(self, steps: int) -> float:
        """The lower quartile of the block's steps: what disturbs a step only ever makes it longer.

        On a GPU these are the host's times; with 300 small modules the host is what limits the step.
        """
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            self.step()
            times.append((time.perf_counter() - began) * 1e3)
        if self.device != "cpu":
            torch.cuda.synchronize()
        return statistics.quantiles(times, n=4)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=80)
    parser.add_argument("--block-steps", type=int, default=12)
    parser.add_argument("--settle-steps", type=int, default=8)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "measure_overhead.csv")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        training = Training(args.device, args.width, args.batch_size)
        training.block_ms(20)
        switch = Switch(folder)
        training.batches = iter(training.loader)
        training.block_ms(20)
        assert switch.session.course.stage is switch.session.course.window, switch.session.course.says
        switch.remember_measuring()
        without, ratios = [], []
        for pair in range(args.pairs):
            times = {}
            for measuring in random.sample([False, True], 2):
                switch.set(measuring)
                # Changing a class makes the interpreter forget what it learned about it: let it learn again, untimed.
                training.block_ms(args.settle_steps)
                times[measuring] = training.block_ms(args.block_steps)
            switch.session.recorder.marks.clear()
            without.append(times[False])
            ratios.append(times[True] / times[False])
            if pair % 20 == 19:
                print(f"pair {pair + 1}: median ratio {statistics.median(ratios):.4f}", flush=True)
        switch.set(False)
        switch.session.attendant.done.set()
        switch.session.written = True
    low, high = bootstrap(ratios)
    step_ms = statistics.median(without)
    row = {
        "device": args.device,
        "modules": 300,
        "step_ms_without": round(step_ms, 4),
        "overhead_us_per_step": round((statistics.median(ratios) - 1) * step_ms * 1e3, 1),
        "ratio_median": round(statistics.median(ratios), 4),
        "ratio_low": round(low, 4),
        "ratio_high": round(high, 4),
        "pairs": args.pairs,
        "block_steps": args.block_steps,
        "torch": torch.__version__,
        "hardware": torch.cuda.get_device_name() if args.device == "cuda" else f"{os.cpu_count()} CPU cores",
    }
    print(row)
    write(args.output, row)


def bootstrap(values: list[float], rounds: int = 2000) -> tuple[float, float]:
    """95 % interval of the median."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def write(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
