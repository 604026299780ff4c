"""A demonstration of each technique: it runs on some ranks, says what it sent, and compares its numbers with torch's.

``DEMONSTRATIONS`` is what ``python -m vivace.parallel.underhood`` lists and the labs show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from vivace.parallel.underhood import halo, tensor
from vivace.parallel.underhood.collectives import all_gather, all_reduce, broadcast, reduce_scatter
from vivace.parallel.underhood.data_parallel import DataParallel
from vivace.parallel.underhood.pi import pi
from vivace.parallel.underhood.pipeline import Pipeline, Schedule, bubble, draw, gpipe, naive, one_f_one_b
from vivace.parallel.underhood.wire import Wire
from vivace.parallel.underhood.zero import Zero

__all__ = ["DEMONSTRATIONS", "Demonstration", "Shown"]

_CLOSE = 1e-9  # of double precision, after sums in another order


@dataclass
class Shown:
    """A table, what to look at, and the largest difference to the reference."""

    head: tuple[str, ...]
    rows: list[tuple[object, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    difference: float = 0.0

    def compare(self, mine: torch.Tensor | None, reference: torch.Tensor | None) -> None:
        """Relative to the largest value of the reference."""
        assert mine is not None
        assert reference is not None
        scale = float(reference.abs().max()) or 1.0
        self.difference = max(self.difference, float((mine - reference).abs().max()) / scale)

    @property
    def agrees(self) -> bool:
        return self.difference < _CLOSE


@dataclass(frozen=True)
class Demonstration:
    name: str
    about: str
    run: Callable[[Wire], Shown]
    at_least: int = 2


def _messages(wire: Wire) -> Shown:
    shown = Shown(("way", "messages", "bytes"))
    mine = torch.full((1000,), float(wire.rank), dtype=torch.float64)
    theirs = torch.full((1000,), float(wire.previous), dtype=torch.float64)
    wire.sent.clear()
    got = torch.empty_like(mine)
    if wire.rank % 2 == 0:  # blocking: somebody must receive first
        wire.send(mine, wire.next)
        wire.receive(got, wire.previous)
    else:
        wire.receive(got, wire.previous)
        wire.send(mine, wire.next)
    shown.rows.append(("blocking, even ranks send first", wire.sent.messages, wire.sent.bytes))
    shown.compare(got, theirs)
    wire.sent.clear()
    shown.compare(wire.exchange(mine, wire.next, torch.empty_like(mine), wire.previous), theirs)
    shown.rows.append(("not blocking, all at once", wire.sent.messages, wire.sent.bytes))
    shown.notes.append("If all ranks send first and block, nobody receives: they wait forever.")
    return shown


def _ring(wire: Wire) -> Shown:
    shown = Shown(("operation", "messages", "bytes", "bytes / size of the tensor"))
    mine = torch.arange(12_000, dtype=torch.float64) * (wire.rank + 1)
    size = mine.numel() * mine.element_size()
    reference = mine.clone()
    dist.all_reduce(reference)
    parts = list(mine.clone().tensor_split(wire.size))
    first = mine.clone()
    operations: dict[str, Callable[[], object]] = {
        "broadcast": lambda: broadcast(wire, first),
        "reduce-scatter": lambda: reduce_scatter(wire, parts),
        "all-gather": lambda: all_gather(wire, parts),
        "all-reduce": lambda: all_reduce(wire, mine),
    }
    for name, operation in operations.items():
        wire.sent.clear()
        operation()
        shown.rows.append((name, wire.sent.messages, wire.sent.bytes, f"{wire.sent.bytes / size:.2f}"))
    shown.compare(mine, reference)
    shown.compare(torch.cat(parts), reference)
    shown.compare(first, torch.arange(12_000, dtype=torch.float64))
    shown.notes.append(f"The theory for an all-reduce: 2 (N - 1)/N = {2 * (wire.size - 1) / wire.size:.2f}.")
    return shown


def _pi(wire: Wire) -> Shown:
    shown = Shown(("blocks", "π", "error"))
    for blocks in (100, 10_000, 1_000_000):
        value = pi(wire, blocks)
        shown.rows.append((blocks, f"{value:.12f}", f"{abs(value - math.pi):.1e}"))
    shown.compare(torch.tensor(pi(wire, 1_000_000), dtype=torch.float64), torch.tensor(math.pi, dtype=torch.float64))
    return shown


def _net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)]
    return nn.Sequential(*layers).double()


def _samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    return torch.randn(count, 16, generator=draws).double(), torch.randn(count, 4, generator=draws).double()


def _alone(steps: int, count: int, make: Callable[..., torch.optim.Optimizer], **options: float) -> nn.Sequential:
    """The same training in one process, on all samples."""
    model = _net()
    optimizer = make(model.parameters(), **options)
    inputs, targets = _samples(count)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return model


def _compare_models(shown: Shown, mine: nn.Module, reference: nn.Module) -> None:
    for one, other in zip(mine.parameters(), reference.parameters(), strict=True):
        shown.compare(one.detach(), other.detach())


def _data_parallel(wire: Wire) -> Shown:
    shown = Shown(("bucket size in bytes", "buckets", "messages a step", "bytes a step", "gradients in bytes"))
    inputs, targets = (each.chunk(wire.size)[wire.rank] for each in _samples(8 * wire.size))
    for bucket_bytes in (1, 10_000, 25 * 2**20):
        model = DataParallel(_net(seed=wire.rank), wire, bucket_bytes)  # other values on each rank: rank 0's are taken
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            wire.sent.clear()
            functional.mse_loss(model(inputs), targets).backward()
            model.finish()
            optimizer.step()
        size = sum(each.numel() * each.element_size() for each in model.parameters())
        shown.rows.append((bucket_bytes, len(model.buckets), wire.sent.messages, wire.sent.bytes, size))
        _compare_models(shown, model.module, _alone(3, 8 * wire.size, torch.optim.SGD, lr=0.1, momentum=0.9))
    shown.notes.append("Buckets change the number of messages, not the bytes: 2 (N - 1)/N of the gradients.")
    return shown


def _zero(wire: Wire) -> Shown:
    shown = Shown(("stage", "kept between steps, bytes", "most parameters and gradients, bytes", "bytes sent a step"))
    inputs, targets = (each.chunk(wire.size)[wire.rank] for each in _samples(8 * wire.size))
    reference = _alone(3, 8 * wire.size, torch.optim.Adam, lr=0.01)
    whole = sum(each.numel() * each.element_size() for each in reference.parameters())
    for stage in (1, 2, 3):
        model = _net()
        sharded = Zero(model, wire, torch.optim.Adam, stage, lr=0.01)
        for _ in range(3):
            wire.sent.clear()
            functional.mse_loss(model(inputs), targets).backward()
            sharded.step()
        sent, kept = wire.sent.bytes, sharded.kept_bytes()
        shown.rows.append((stage, kept, sharded.largest_bytes, sent))
        for unit in sharded.units:
            unit.gather()
        _compare_models(shown, model, reference)
    shown.notes += [
        f"Parameters: {whole} bytes. Data parallelism with Adam keeps three times that: {3 * whole}.",
        "Stages 1 and 2 send what an all-reduce sends; stage 3 gathers once more, before the backward pass.",
    ]
    return shown


def _tensor(wire: Wire) -> Shown:
    shown = Shown(("part", "all-reduces forward", "all-reduces backward", "bytes sent"))
    torch.manual_seed(0)
    heads = 2 * wire.size
    whole = nn.TransformerEncoderLayer(8 * heads, heads, 16 * heads, 0.0, "gelu", norm_first=True, batch_first=True)
    whole = whole.double()
    words = nn.Embedding(16 * wire.size, 8 * heads).double()
    drawn = torch.randint(0, 16 * wire.size, (2, 6))
    mask = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    reference = whole(words(drawn), src_mask=mask, is_causal=True)
    reference.square().mean().backward()

    embedding, block = tensor.VocabularyEmbedding(words, wire), tensor.Block(whole, wire)
    for norm in (block.norm1, block.norm2):
        norm.zero_grad()  # the norms are the same objects as the reference's
    an_all_reduce = 2 * (wire.size - 1)
    wire.sent.clear()
    vectors = embedding(drawn)
    shown.rows.append(("embedding", wire.sent.messages // an_all_reduce, 0, wire.sent.bytes))
    wire.sent.clear()
    outputs = block(vectors)
    forward = wire.sent.messages // an_all_reduce
    outputs.square().mean().backward()
    backward = wire.sent.messages // an_all_reduce - forward
    shown.rows.append(("transformer layer", forward, backward, wire.sent.bytes))
    shown.compare(outputs.detach(), reference.detach())
    for mine, gradient, dim in (
        (embedding.weight, words.weight.grad, 0),
        (block.mlp.columns.weight, whole.linear1.weight.grad, 0),
        (block.mlp.rows.weight, whole.linear2.weight.grad, 1),
        (block.attention.out.weight, whole.self_attn.out_proj.weight.grad, 1),
    ):
        assert gradient is not None
        shown.compare(mine.grad, gradient.chunk(wire.size, dim)[wire.rank])
    shown.notes.append("Four communications for a transformer layer: two forward (g), two backward (f).")
    return shown


_SCHEDULES: dict[str, Schedule] = {"naive": naive, "gpipe": gpipe, "1F1B": one_f_one_b}


def _pipeline(wire: Wire) -> Shown:
    shown = Shown(("schedule", "micro-batches", "bubble", "micro-batches kept on this rank", "messages"))
    count = 16
    inputs, targets = _samples(count)
    sizes = [16, *[24] * (wire.size - 1), 4]
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(a, b), nn.Tanh()).double() for a, b in pairwise(sizes)]
    whole = nn.Sequential(*stages)
    functional.mse_loss(whole(inputs), targets).backward()
    references = [each.grad.clone() for each in stages[wire.rank].parameters() if each.grad is not None]
    for name, schedule in _SCHEDULES.items():
        micro_batches = 8
        whole.zero_grad()
        wire.sent.clear()
        pipeline = Pipeline(stages[wire.rank], wire, schedule, torch.Size([24]))
        pipeline.step(inputs, targets, functional.mse_loss, micro_batches)
        share = bubble(schedule, wire.size, micro_batches)
        shown.rows.append((name, micro_batches, f"{share:.0%}", pipeline.most_kept, wire.sent.messages))
        for parameter, reference in zip(stages[wire.rank].parameters(), references, strict=True):
            shown.compare(parameter.grad, reference)
    shown.notes += [f"{name}:\n{draw(schedule, wire.size, 4)}" for name, schedule in _SCHEDULES.items()]
    return shown


def _halo(wire: Wire) -> Shown:
    shown = Shown(("layer", "messages forward and backward", "bytes", "this rank's rows"))
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 4, 3, padding=1).double(), nn.Conv2d(4, 2, 5, padding=2).double()
    layers = nn.Sequential(first, nn.Tanh(), second)
    picture = torch.randn(2, 3, 8 * wire.size, 10, dtype=torch.float64)
    reference = layers(picture)
    reference.square().mean().backward()
    gradients = [each.grad.clone() for each in layers.parameters() if each.grad is not None]
    layers.zero_grad()
    wire.sent.clear()
    split = nn.Sequential(halo.SplitConv2d(first, wire), nn.Tanh(), halo.SplitConv2d(second, wire))
    rows = picture.chunk(wire.size, dim=2)[wire.rank].contiguous()
    outputs = split(rows)
    outputs.square().mean().backward()
    shown.rows.append(("3×3 and 5×5 convolution", wire.sent.messages, wire.sent.bytes, rows.shape[2]))
    halo.average_gradients(layers, wire)
    shown.compare(outputs.detach(), reference.detach().chunk(wire.size, dim=2)[wire.rank])
    for parameter, gradient in zip(layers.parameters(), gradients, strict=True):
        shown.compare(parameter.grad, gradient)
    return shown


DEMONSTRATIONS = {
    each.name: each
    for each in (
        Demonstration("messages", "blocking and non-blocking messages around a ring", _messages),
        Demonstration("ring", "broadcast, reduce-scatter, all-gather and all-reduce, made of messages", _ring),
        Demonstration("pi", "π by blocks, one all-reduce", _pi, at_least=1),
        Demonstration("data-parallel", "gradients in buckets, sent while the backward pass runs", _data_parallel),
        Demonstration("zero", "optimizer states, gradients and parameters cut over the ranks", _zero),
        Demonstration("tensor", "a transformer layer cut over the ranks", _tensor),
        Demonstration("pipeline", "layers on different ranks: naive, GPipe, 1F1B, and their bubbles", _pipeline),
        Demonstration("halo", "a picture cut over the ranks, with the rows at the edges exchanged", _halo),
    )
}
