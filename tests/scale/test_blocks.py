"""Which parts of a model are gathered by themselves."""

from __future__ import annotations

import torch
from torch import nn

from vivace.scale.blocks import repeated_blocks


def anything(_block: nn.Module) -> bool:
    return True


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(4, 2, 8) for _ in range(3))
        self.tower = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 5))
        self.head = nn.Linear(4, 9, bias=False)
        self.head.weight = self.embed.weight


def test_layers_of_one_kind_are_blocks():
    model = Model()
    assert repeated_blocks(model, anything) == [*model.layers, model.tower[0], model.tower[1]]


def test_a_block_that_may_not_be_one_is_searched_for_smaller_ones():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)) for _ in range(2)))
    inner = [child for block in model for child in block]
    assert repeated_blocks(model, lambda block: isinstance(block, nn.Linear)) == inner


def test_weights_that_are_used_elsewhere_too_are_in_no_block():
    model = Model()
    model.layers[1].linear1.weight = nn.Parameter(model.layers[1].linear1.weight.detach())
    model.extra = nn.Linear(4, 8)
    model.extra.weight = model.layers[1].linear1.weight
    found = repeated_blocks(model, anything)
    assert model.layers[0] in found
    assert model.layers[1] not in found


def test_parameters_of_other_shapes_make_another_kind():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4), nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Tanh())
    assert repeated_blocks(model, anything) == []
