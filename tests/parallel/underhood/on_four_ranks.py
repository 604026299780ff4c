"""Run by ``test_underhood.py`` in a process of its own: what four ranks find, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from vivace.parallel.underhood import tensor
from vivace.parallel.underhood.collectives import all_reduce, broadcast
from vivace.parallel.underhood.data_parallel import DataParallel
from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS
from vivace.parallel.underhood.ranks import RankFailed, on_ranks
from vivace.parallel.underhood.wire import Wire


def far(mine: torch.Tensor, other: torch.Tensor) -> float:
    return float((mine - other).abs().max())


def demonstrations(wire: Wire) -> dict[str, Any]:
    found = {}
    for name, each in DEMONSTRATIONS.items():
        shown = each.run(wire)
        found[name] = {"difference": shown.difference, "rows": [[str(cell) for cell in row] for row in shown.rows]}
    return found


def collectives(wire: Wire) -> dict[str, Any]:
    """Sizes that do not divide by the ranks, and fewer elements than ranks; a root that is not rank 0."""
    found = {}
    for size in (1, 3, 10, 1001):
        mine = torch.arange(size, dtype=torch.float64) + wire.rank
        reference = mine.clone()
        torch.distributed.all_reduce(reference)
        found[f"all_reduce {size}"] = far(all_reduce(wire, mine), reference)
    from_two = broadcast(wire, torch.tensor([float(wire.rank)]), root=2)
    return {**found, "broadcast": far(from_two, torch.tensor([2.0]))}


def data_parallel(wire: Wire) -> dict[str, Any]:
    """Against torch's own: accumulation, and a layer that some ranks do not use."""

    def net() -> nn.ModuleList:
        torch.manual_seed(0)
        return nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]).double()

    class Forward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = net()

        def forward(self, inputs: torch.Tensor, both: bool) -> torch.Tensor:
            middle = self.layers[0](inputs)
            return self.layers[1](middle) if both else middle

    mine, theirs = DataParallel(Forward(), wire, 100), DistributedDataParallel(Forward(), find_unused_parameters=True)
    inputs = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(wire.rank))
    for model in (mine, theirs):
        with model.no_sync():
            model(inputs, True).square().mean().backward()
        wire.sent.clear()
        model(2 * inputs, wire.rank != 1).square().mean().backward()
    mine.finish()
    pairs = zip(mine.parameters(), theirs.parameters(), strict=True)
    return {"gradients": max(far(one.grad, other.grad) for one, other in pairs)}


def tensor_steps(wire: Wire) -> dict[str, Any]:
    """The course's steps, in its order. Two models of two ranks each (steps 8 to 11)."""
    found: dict[str, Any] = {}
    model, data = tensor.grid(2)
    found["8 groups"] = [model.rank, model.size, data.rank, data.size]
    torch.manual_seed(0)
    inputs = torch.randn(4, 6, 8, dtype=torch.float64)
    shared = inputs.clone().requires_grad_()
    tensor.to_all(shared, model).sum().backward()
    found["1 f backward"] = far(shared.grad, torch.full_like(inputs, model.size))
    parts = torch.full((2,), float(model.rank + 1), requires_grad=True)
    summed = tensor.from_all(parts, model)
    summed.sum().backward()
    found["1 g"] = [far(summed.detach(), torch.full((2,), 3.0)), far(parts.grad, torch.ones(2))]

    linear = nn.Linear(8, 12).double()
    whole = linear(inputs)
    columns = tensor.ColumnLinear(linear, model)
    found["2 columns"] = far(columns(inputs), whole.chunk(2, -1)[model.rank])
    rows = tensor.RowLinear(linear, model)
    found["6 rows"] = far(rows(inputs.chunk(2, -1)[model.rank]), whole)
    words = nn.Embedding(10, 8).double()
    drawn = torch.randint(0, 10, (4, 6))
    found["3 embedding"] = far(tensor.VocabularyEmbedding(words, model)(drawn), words(drawn))

    layer = nn.TransformerEncoderLayer(8, 4, 16, 0.0, "gelu", norm_first=True, batch_first=True).double()
    mask = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    attention = tensor.Attention(layer.self_attn, model)
    expected = layer.self_attn(inputs, inputs, inputs, attn_mask=mask, need_weights=False)[0]
    found["4 attention"] = far(attention(inputs), expected)
    mlp = tensor.MLP(layer.linear1, layer.linear2, model)
    found["5 mlp"] = far(mlp(inputs), layer.linear2(functional.gelu(layer.linear1(inputs))))

    reference = layer(inputs, src_mask=mask, is_causal=True)
    reference.square().mean().backward()
    gradient = layer.linear1.weight.grad.clone()
    layer.zero_grad()
    both = DataParallel(tensor.Block(layer, model), data)  # steps 7, 9, 10, 11
    model.sent.clear()
    data.sent.clear()
    share = inputs.chunk(data.size)[data.rank]
    outputs = both(share)
    outputs.square().mean().backward()
    both.finish()
    found["7 block"] = far(outputs, reference.chunk(data.size)[data.rank])
    found["9 messages in the model's group"] = model.sent.messages
    found["11 gradients"] = far(both.module.mlp.columns.weight.grad, gradient.chunk(2)[model.rank])
    return found


def both_send_first(wire: Wire) -> None:
    wire.send(torch.ones(100_000), wire.next)
    wire.receive(torch.empty(100_000), wire.previous)


def main() -> None:
    found = {each.__name__: on_ranks(each, 4) for each in (demonstrations, collectives, data_parallel, tensor_steps)}
    try:
        on_ranks(both_send_first, 2, timeout_s=1)
    except RankFailed as failed:
        found["both_send_first"] = str(failed)
    try:
        on_ranks(lambda wire: sys.exit(3) if wire.rank else wire.receive(torch.empty(1), 1), 2)
    except RankFailed as failed:
        found["a rank ends"] = str(failed)
    print(json.dumps(found))


main()
