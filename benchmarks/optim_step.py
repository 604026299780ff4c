"""How long does a step of each optimizer take, compared with torch's AdamW (fused where there is a fused one)?

    OMP_NUM_THREADS=1 python benchmarks/optim_step.py --shapes small          # CPU
    python benchmarks/optim_step.py --device cuda                             # ResNet-50's and GPT-2 124M's shapes

Parameters and gradients have a model's shapes; nothing else runs. All optimizers step in turn in each round, so that
what disturbs the machine disturbs all. Writes results/optim_step.csv: median and quartiles over rounds, and the
median of the ratios to AdamW of the same round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rows import Table, hardware, say

from vivace.methods.optim import Lamb, Lars, Lion, Muon, ScheduleFreeAdamW, Shampoo
from vivace.train.models.resnet import by_name

RESULTS = Path(__file__).parent / "results" / "optim_step.csv"
FIELDS = (
    "shapes", "parameters", "tensors", "device", "optimizer", "rounds", "step_ms", "step_ms_low", "step_ms_high",
    "times_adamw", "note", "hardware", "torch",
)  # fmt: skip
REFERENCE = "adamw, fused"


def gpt2_shapes(layers: int = 12, hidden: int = 768, vocab: int = 50304, context: int = 1024) -> list[tuple[int, ...]]:
    block = [(hidden,), (hidden,), (3 * hidden, hidden), (3 * hidden,), (hidden, hidden), (hidden,), (hidden,),
             (hidden,), (4 * hidden, hidden), (4 * hidden,), (hidden, 4 * hidden), (hidden,)]  # fmt: skip
    return [(vocab, hidden), (context, hidden), *block * layers, (hidden,), (hidden,)]


SHAPES: dict[str, Callable[[], list[tuple[int, ...]]]] = {
    "small": lambda: gpt2_shapes(layers=2, hidden=128, vocab=512, context=64),
    "resnet18": lambda: [tuple(each.shape) for each in by_name("resnet18", 10).parameters()],
    "resnet50": lambda: [tuple(each.shape) for each in by_name("resnet50").parameters()],
    "gpt2-124m": gpt2_shapes,
}

OPTIMIZERS: dict[str, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    REFERENCE: lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
    "adamw, foreach": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=True),
    "sgd, fused": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9, fused=True),
    "nadamw": lambda p: torch.optim.NAdam(p, lr=1e-4, decoupled_weight_decay=True),
    "lamb": lambda p: Lamb(p, lr=1e-4, weight_decay=0.01),
    "lars": lambda p: Lars(p, lr=1e-4, weight_decay=1e-4),
    "lion": lambda p: Lion(p, lr=1e-5, weight_decay=0.01),
    "muon": lambda p: Muon(p, lr=1e-4),
    "schedulefree": lambda p: ScheduleFreeAdamW(p, lr=1e-4),
    "shampoo": lambda p: Shampoo(p, lr=1e-4),
}


def made(name: str, shapes: list[tuple[int, ...]], device: str) -> torch.optim.Optimizer:
    parameters = [torch.nn.Parameter(torch.randn(shape, device=device) * 0.02) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * 0.01
    return OPTIMIZERS[name](parameters)


def step_ms(optimizer: torch.optim.Optimizer, steps: int, device: str) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES))
    parser.add_argument("--optimizers", nargs="*", choices=list(OPTIMIZERS), default=list(OPTIMIZERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20, help="of a round; Shampoo's roots come every 20 steps")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    table = Table(options.output, FIELDS, hardware(options.device))
    for shapes in options.shapes or (["small"] if options.device == "cpu" else ["resnet50", "gpt2-124m"]):
        sizes = SHAPES[shapes]()
        say(f"{shapes}: {len(sizes)} tensors")
        optimizers = {
            name: made(name, sizes, options.device) for name in dict.fromkeys([REFERENCE, *options.optimizers])
        }
        times: dict[str, list[float]] = {name: [] for name in optimizers}
        for number in range(options.rounds + 1):  # the first warms up
            for name, optimizer in optimizers.items():
                spent = step_ms(optimizer, options.steps, options.device)
                if number:
                    times[name].append(spent)
        for name, spent in times.items():
            quarters = statistics.quantiles(spent, n=4)
            ratios = [own / other for own, other in zip(spent, times[REFERENCE], strict=True)]
            table.add(shapes=shapes, parameters=sum(p.numel() for p in optimizers[name].param_groups[0]["params"]),
                      tensors=len(sizes), device=options.device, optimizer=name, rounds=options.rounds,
                      step_ms=statistics.median(spent), step_ms_low=quarters[0], step_ms_high=quarters[2],
                      times_adamw=statistics.median(ratios))  # fmt: skip


if __name__ == "__main__":
    main()
