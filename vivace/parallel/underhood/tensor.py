"""Tensor parallelism: one layer on several ranks, as Megatron-LM cuts a transformer (Shoeybi et al., 2019).

Two linear layers after each other need one sum only: cut the first by columns, the second by rows.

    Y = gelu(X A) B,   A = [A1 A2],   B = [B1]      →   gelu(X A1) B1  on rank 0
                                          [B2]      +   gelu(X A2) B2  on rank 1

The sum of the ranks' results is Y. Two functions do all the talking. They are each other's mirror:

| | forward | backward |
|---|---|---|
| ``to_all`` (Megatron's f) | nothing: everybody has X | all-reduce: X's gradient is the sum of the ranks' |
| ``from_all`` (Megatron's g) | all-reduce: Y is the sum of the ranks' parts | nothing: everybody has Y's gradient |

An attention and an MLP have one of each: four all-reduces for a transformer layer, two forward and two backward.

The course builds this in eleven steps; ``tests/parallel/underhood/test_tensor.py`` checks each one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vivace.parallel.underhood.collectives import all_reduce
from vivace.parallel.underhood.wire import Wire

__all__ = [
    "MLP",
    "Attention",
    "Block",
    "ColumnLinear",
    "RowLinear",
    "VocabularyEmbedding",
    "from_all",
    "grid",
    "to_all",
]


class _ToAll(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, wire: Wire) -> torch.Tensor:
        context.wire = wire
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_reduce(context.wire, gradient.clone(memory_format=torch.contiguous_format)), None


class _FromAll(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, wire: Wire) -> torch.Tensor:
        return all_reduce(wire, tensor.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def to_all(tensor: torch.Tensor, wire: Wire) -> torch.Tensor:
    """f: a tensor that every rank has goes into the ranks' parts of a layer."""
    return _ToAll.apply(tensor, wire)


def from_all(tensor: torch.Tensor, wire: Wire) -> torch.Tensor:
    """g: the ranks' parts are added up; every rank has the sum."""
    return _FromAll.apply(tensor, wire)


def _mine(tensor: torch.Tensor, wire: Wire, dim: int = 0) -> nn.Parameter:
    """This rank's piece of a weight of the whole layer."""
    assert tensor.shape[dim] % wire.size == 0, f"{tensor.shape[dim]} cannot be cut into {wire.size} equal pieces"
    return nn.Parameter(tensor.detach().chunk(wire.size, dim)[wire.rank].clone())


class ColumnLinear(nn.Module):
    """Each rank has some of the outputs. ``nn.Linear`` keeps its weight as (outputs, inputs): the cut is along 0."""

    def __init__(self, whole: nn.Linear, wire: Wire) -> None:
        super().__init__()
        self.wire = wire
        self.weight = _mine(whole.weight, wire)
        self.bias = None if whole.bias is None else _mine(whole.bias, wire)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(to_all(inputs, self.wire), self.weight, self.bias)


class RowLinear(nn.Module):
    """Each rank has some of the inputs, and a part of every output. The bias is added once, after the sum."""

    def __init__(self, whole: nn.Linear, wire: Wire) -> None:
        super().__init__()
        self.wire = wire
        self.weight = _mine(whole.weight, wire, dim=1)
        self.bias = None if whole.bias is None else nn.Parameter(whole.bias.detach().clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = from_all(functional.linear(inputs, self.weight), self.wire)
        return outputs if self.bias is None else outputs + self.bias


class VocabularyEmbedding(nn.Module):
    """Each rank has the vectors of some words. It answers zero for the others' words, and the sum is the answer."""

    def __init__(self, whole: nn.Embedding, wire: Wire) -> None:
        super().__init__()
        self.wire = wire
        self.weight = _mine(whole.weight, wire)
        self.first = wire.rank * len(self.weight)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        place = words - self.first
        others = (place < 0) | (place >= len(self.weight))
        vectors = functional.embedding(place.masked_fill(others, 0), self.weight)
        return from_all(vectors.masked_fill(others.unsqueeze(-1), 0), self.wire)


class Attention(nn.Module):
    """Each rank has some of the heads. Heads do not need each other before the last product.

    Scores are divided by the square root of the *head's* size, not of the model's.
    """

    def __init__(self, whole: nn.MultiheadAttention, wire: Wire) -> None:
        super().__init__()
        assert whole.num_heads % wire.size == 0, f"{whole.num_heads} heads cannot be shared by {wire.size} ranks"
        self.heads = whole.num_heads // wire.size
        queries, keys, values = (_linear(*each) for each in zip(*_cut_in_three(whole), strict=True))
        self.queries = ColumnLinear(queries, wire)
        self.keys = ColumnLinear(keys, wire)
        self.values = ColumnLinear(values, wire)
        self.out = RowLinear(whole.out_proj, wire)
        self.wire = wire

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        shared = to_all(inputs, self.wire)  # one sum in the backward pass for the three products together
        queries, keys, values = (
            functional.linear(shared, each.weight, each.bias).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.queries, self.keys, self.values)
        )
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Columns, then rows: one sum for two products."""

    def __init__(self, first: nn.Linear, second: nn.Linear, wire: Wire) -> None:
        super().__init__()
        self.columns, self.rows = ColumnLinear(first, wire), RowLinear(second, wire)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.rows(functional.gelu(self.columns(inputs)))


class Block(nn.Module):
    """A transformer layer, cut: four all-reduces. What is not cut (the norms) is the same on every rank, by itself.

    ``whole`` is torch's own layer (norm first, GELU, no dropout), which it must equal.
    """

    def __init__(self, whole: nn.TransformerEncoderLayer, wire: Wire) -> None:
        super().__init__()
        self.attention = Attention(whole.self_attn, wire)
        self.mlp = MLP(whole.linear1, whole.linear2, wire)
        self.norm1, self.norm2 = whole.norm1, whole.norm2

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = inputs + self.attention(self.norm1(inputs))
        return inputs + self.mlp(self.norm2(inputs))


def grid(tensor_ranks: int) -> tuple[Wire, Wire]:
    """Tensor and data parallelism together: the wire of this rank's model, and the wire across the models.

    Ranks that cut the same layer talk most, so they are neighbours (on one node): 0 1 | 2 3 with two tensor ranks.
    Ranks with the same piece of different models (0 2 and 1 3) average its gradients.
    """
    here, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    assert world % tensor_ranks == 0, f"{world} ranks cannot form groups of {tensor_ranks}"
    first = here - here % tensor_ranks
    model = Wire(range(first, first + tensor_ranks))
    data = Wire(range(here % tensor_ranks, world, tensor_ranks))
    return model, data


def _cut_in_three(whole: nn.MultiheadAttention) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """torch keeps the three weights as one matrix, one below the other."""
    assert whole.in_proj_weight is not None
    assert whole.in_proj_bias is not None
    return list(whole.in_proj_weight.chunk(3)), list(whole.in_proj_bias.chunk(3))


def _linear(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    layer.weight, layer.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
    return layer
