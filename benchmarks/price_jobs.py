"""Small training jobs with one thing missing or one defect planted, for pairs whose price can be checked.

    python benchmarks/price_jobs.py --job mlp --words anomaly          # trains until it is stopped

A job is a model with its batch; ``words`` change it. Some are fixes (bf16, compile), some are defects (anomaly, item).
``PAIRS`` says which two sets of words differ by one practice. `price_trials.py` measures and times them.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent / "defects"))
from common import ConvNet, usable_cores

__all__ = ["PAIRS", "Pair", "build"]

Step = Callable[[], None]


@dataclass(frozen=True)
class Pair:
    """``before`` has the finding ``practice``; ``after`` has not."""

    job: str
    before: str
    after: str
    practice: str
    compiles: bool = False


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, by_hand: bool) -> None:
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.inwards, self.outwards = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.inwards(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if self.by_hand:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(mask, -math.inf).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outwards(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, by_hand: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads, by_hand)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.narrow(F.gelu(self.widen(self.norms[1](x))))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, vocabulary: int, by_hand: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, width // 64, by_hand) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, width, 2, batch_first=True), nn.Linear(width, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


class Pointwise(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        return x + self.scale * torch.tanh(y * 0.5 * (1.0 + torch.erf(y / 1.41421)))


class Photos(Dataset):
    """A sample costs ``work`` passes over a small picture, as decoding and augmenting does."""

    def __init__(self, side: int, work: int) -> None:
        self.side, self.work = side, work

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = torch.full((3, self.side, self.side), index % 255 / 255)
        for _ in range(self.work):
            picture = picture.mul(0.99).add_(0.001).flip(-1)
        return picture, index % 100


def _mlp(width: int, depth: int, norm: bool = True) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(depth):
        parts += [nn.Linear(width, width), *([nn.LayerNorm(width)] if norm else []), nn.GELU()]
    return nn.Sequential(*parts)


# name → (model of the words, shape of a batch), large for a GPU and small for a CPU.
IMAGES, TOKENS, NUMBERS = "images", "tokens", "numbers"
JOBS: dict[str, tuple[str, Callable[[frozenset[str]], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "convnet": (IMAGES, lambda w: ConvNet(64, 24, bias="bias" in w), (128, 3, 64, 64), (8, 3, 64, 64)),
    "convnet_small": (IMAGES, lambda w: ConvNet(64, 9, bias="bias" in w), (32, 3, 32, 32), (4, 3, 32, 32)),
    "convnet_large": (IMAGES, lambda w: ConvNet(128, 12, bias="bias" in w), (256, 3, 128, 128), (8, 3, 64, 64)),
    "photos": (IMAGES, lambda w: ConvNet(64, 9), (128, 3, 128, 128), (8, 3, 64, 64)),
    "photos_light": (IMAGES, lambda w: ConvNet(64, 12), (256, 3, 128, 128), (8, 3, 64, 64)),
    "gpt": (TOKENS, lambda w: Gpt(8, 768, 32768, "attention" in w), (8, 1024), (1, 64)),
    "gpt_wide": (TOKENS, lambda w: Gpt(8, 1536, 32768, "attention" in w), (16, 1024), (1, 64)),
    "gpt_small": (TOKENS, lambda w: Gpt(6, 256, 4096, "attention" in w), (8, 256), (1, 32)),
    "mlp": (NUMBERS, lambda w: _mlp(1024, 24), (8192, 1024), (16, 1024)),
    "mlp_small": (NUMBERS, lambda w: _mlp(256, 24), (256, 256), (16, 256)),
    "products": (NUMBERS, lambda w: _mlp(4095 if "odd" in w else 4096, 6, norm=False), (8192, 4096), (32, 512)),
    "pointwise": (NUMBERS, lambda w: nn.Sequential(*[Pointwise(512) for _ in range(8)]), (65536, 512), (1024, 512)),
    "lstm": (NUMBERS, lambda w: Recurrent(1024), (128, 128, 64), (4, 8, 64)),
}
LOADED = {"photos": 12, "photos_light": 2}  # passes over a picture

PAIRS = (
    Pair("convnet_large", "", "channels_last", "channels_last"),
    Pair("convnet_large", "", "bf16", "bf16"),
    Pair("convnet_large", "", "cudnn_benchmark", "cudnn_benchmark"),
    Pair("convnet_large", "bias", "", "bias_before_norm"),
    Pair("convnet_large", "bf16", "bf16+channels_last", "channels_last"),
    Pair("convnet_large", "bf16+channels_last", "bf16+channels_last+compile", "compile", compiles=True),
    Pair("convnet_large", "graph_validation", "validation", "no_grad_validation"),
    Pair("gpt_wide", "bf16", "bf16+compile", "compile", compiles=True),
    Pair("gpt_wide", "bf16", "bf16+fused_optimizer", "fused_optimizer"),
    Pair("gpt_wide", "bf16+attention", "bf16", "attention"),
    Pair("convnet", "", "channels_last", "channels_last"),
    Pair("convnet", "", "bf16", "bf16"),
    Pair("convnet", "", "cudnn_benchmark", "cudnn_benchmark"),
    Pair("convnet", "", "compile", "compile", compiles=True),
    Pair("convnet", "bf16+channels_last", "bf16+channels_last+compile", "compile", compiles=True),
    Pair("convnet", "bf16", "bf16+channels_last", "channels_last"),
    Pair("convnet", "anomaly", "", "debug_off"),
    Pair("convnet", "graph_validation", "validation", "no_grad_validation"),
    Pair("convnet", "host_noise", "device_noise", "tensors_on_device"),
    Pair("convnet", "bias", "", "bias_before_norm"),
    Pair("convnet", "deterministic", "", "debug_off"),
    Pair("convnet_small", "", "compile", "compile", compiles=True),
    Pair("convnet_small", "", "graphs", "compile=reduce-overhead", compiles=True),
    Pair("convnet_small", "", "bf16", "bf16"),
    Pair("convnet_small", "", "channels_last", "channels_last"),
    Pair("convnet_small", "item", "", "no_syncs"),
    Pair("convnet_small", "anomaly", "", "debug_off"),
    Pair("convnet_small", "graph_validation", "validation", "no_grad_validation"),
    Pair("convnet_small", "host_noise", "device_noise", "tensors_on_device"),
    Pair("photos", "", "workers", "workers"),
    Pair("photos_light", "", "workers", "workers"),
    Pair("photos_light", "workers", "pinned+workers", "pin_memory"),
    Pair("gpt", "", "tf32", "tf32"),
    Pair("gpt", "", "bf16", "bf16"),
    Pair("gpt", "bf16", "bf16+compile", "compile", compiles=True),
    Pair("gpt", "bf16", "bf16+fused_optimizer", "fused_optimizer"),
    Pair("gpt", "bf16+attention", "bf16", "attention"),
    Pair("gpt", "bf16+anomaly", "bf16", "debug_off"),
    Pair("gpt", "bf16+item", "bf16", "no_syncs"),
    Pair("gpt_small", "", "tf32", "tf32"),
    Pair("gpt_small", "", "bf16", "bf16"),
    Pair("gpt_small", "", "compile", "compile", compiles=True),
    Pair("gpt_small", "", "graphs", "compile=reduce-overhead", compiles=True),
    Pair("gpt_small", "", "fused_optimizer", "fused_optimizer"),
    Pair("gpt_small", "item", "", "no_syncs"),
    Pair("gpt_small", "items", "", "no_syncs"),
    Pair("gpt_small", "loop_optimizer", "", "foreach_optimizer"),
    Pair("mlp", "", "tf32", "tf32"),
    Pair("mlp", "", "bf16", "bf16"),
    Pair("mlp", "tf32", "compile+tf32", "compile", compiles=True),
    Pair("mlp", "tf32", "bf16", "bf16"),
    Pair("mlp", "anomaly", "", "debug_off"),
    Pair("mlp", "items", "", "no_syncs"),
    Pair("mlp_small", "", "compile", "compile", compiles=True),
    Pair("mlp_small", "", "graphs", "compile=reduce-overhead", compiles=True),
    Pair("mlp_small", "", "bf16", "bf16"),
    Pair("mlp_small", "anomaly", "", "debug_off"),
    Pair("mlp_small", "items", "", "no_syncs"),
    Pair("mlp_small", "item", "", "no_syncs"),
    Pair("pointwise", "tf32", "compile+tf32", "compile", compiles=True),
    Pair("pointwise", "tf32", "bf16", "bf16"),
    Pair("products", "tf32", "bf16", "bf16"),
    Pair("products", "bf16+odd", "bf16", "tensor_core_sizes"),
    Pair("lstm", "", "bf16", "bf16"),
    Pair("lstm", "", "tf32", "tf32"),
)


def switch(words: frozenset[str]) -> None:
    """The flags of the whole process that these words ask for; all others off."""
    torch.set_float32_matmul_precision("high" if "tf32" in words else "highest")
    torch.backends.cudnn.benchmark = "cudnn_benchmark" in words
    torch.backends.cudnn.deterministic = "deterministic" in words
    torch.use_deterministic_algorithms("deterministic" in words)
    torch.autograd.set_detect_anomaly("anomaly" in words)


def build(job: str, text: str, device: str) -> Step:
    """One training step (with validation: one short epoch), its model and data ready."""
    words = frozenset(filter(None, text.split("+")))
    torch.manual_seed(0)
    kind, make, large, small = JOBS[job]
    shape = small if device == "cpu" else large
    if "odd" in words:
        shape = (*shape[:-1], 4095)
    if kind == NUMBERS and device == "cpu" and job in ("products",):
        make = _small_products
    model = make(words).to(device)
    if "channels_last" in words:
        model = model.to(memory_format=torch.channels_last)
    if "compile" in words or "graphs" in words:
        model.compile(mode="reduce-overhead" if "graphs" in words else "default")
    fused = True if "fused_optimizer" in words else None
    optimizer = torch.optim.AdamW(
        model.parameters(), 1e-4, fused=fused, foreach=False if "loop_optimizer" in words else None
    )
    batches = _batches(job, kind, shape, words, device)
    return _Trainer(model, optimizer, batches, kind, shape, words, device).step


def _small_products(words: frozenset[str]) -> nn.Module:
    return _mlp(511 if "odd" in words else 512, 6, norm=False)


def _batches(
    job: str, kind: str, shape: tuple[int, ...], words: frozenset[str], device: str
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if job in LOADED:
        workers = min(12, usable_cores()) if "workers" in words else 0
        dataset = Photos(shape[-1], LOADED[job])
        loader = DataLoader(dataset, shape[0], num_workers=workers, pin_memory="pinned" in words)
        while True:
            for images, labels in loader:
                yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
    if kind == TOKENS:
        tokens = torch.randint(4096, shape, device=device)
        batch = (tokens, tokens.flatten())
    elif kind == IMAGES:
        batch = (torch.randn(shape, device=device), torch.randint(100, shape[:1], device=device))
        if "channels_last" in words:
            batch = (batch[0].to(memory_format=torch.channels_last), batch[1])
    else:
        numbers = torch.randn(shape, device=device)
        batch = (numbers, numbers)
    while True:
        yield batch


class _Trainer:
    VALIDATION = 8  # batches, after every fourth step

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator, kind: str, shape: tuple[int, ...],
        words: frozenset[str], device: str,
    ) -> None:  # fmt: skip
        self.model, self.optimizer, self.batches, self.kind = model, optimizer, batches, kind
        self.shape, self.words, self.device = shape, words, device
        self.autocast = torch.autocast(device, dtype=torch.bfloat16) if "bf16" in words else nullcontext()
        self.done = 0

    def step(self) -> None:
        if not self.words & {"validation", "graph_validation"}:
            self._train()
            return
        for _ in range(4):
            self._train()
        self._validate()

    def _loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with self.autocast:
            outputs = self.model(inputs)
        if self.kind == NUMBERS:
            return (outputs.float() - targets).square().mean()
        return F.cross_entropy(outputs.float(), targets)

    def _train(self) -> None:
        words = self.words
        inputs, targets = next(self.batches)
        if "host_noise" in words:
            inputs = inputs + 0.01 * torch.randn(self.shape).to(self.device)
        elif "device_noise" in words:
            inputs = inputs + 0.01 * torch.randn(self.shape, device=self.device)
        self.optimizer.zero_grad()
        loss = self._loss(inputs, targets)
        loss.backward()
        if "items" in words:
            self.largest = max(p.grad.abs().max().item() for p in self.model.parameters() if p.grad is not None)
        self.optimizer.step()
        if "item" in words:
            self.last = loss.item()

    def _validate(self) -> None:
        self.model.eval()
        total = torch.zeros((), device=self.device)
        for _ in range(self.VALIDATION):
            inputs, targets = next(self.batches)
            with self._without_graph():
                total += self._loss(inputs, targets).detach()
        self.model.train()

    def _without_graph(self) -> AbstractContextManager:
        return torch.no_grad() if "validation" in self.words else nullcontext()


def _wait_for_the_gpu() -> None:
    """Others may import and start meanwhile, but only one job computes at a time. Energy is not what we are after."""
    if path := os.environ.get("PRICE_GATE"):
        fcntl.flock(os.open(path, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
        tail = sys.modules.get("vivace.measure.inside.stages.energy_tail")
        if tail is not None:
            tail.ENERGY_WINDOW_S = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, choices=JOBS)
    parser.add_argument("--words", default="", help="joined by +: bf16+channels_last")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()
    _wait_for_the_gpu()
    switch(frozenset(args.words.split("+")))
    step = build(args.job, args.words, args.device)
    for _ in range(args.steps):
        step()


if __name__ == "__main__":
    main()
