"""Which dimension is the batch, by the layers that know."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from vivace.measure.inside.facts.sequence_layers import SequenceLayers

WORDS, TEXTS = 35, 20


def told(root: nn.Module, layer: nn.Module, inputs: torch.Tensor, to_the_layer: torch.Tensor) -> bool | None:
    layers = SequenceLayers()
    layers.begin(root, (inputs,))
    layers.look(nn.Linear(1, 1), (inputs,))
    layers.look(layer, (to_the_layer,))
    return layers.settle(root, (inputs,), {})


@pytest.mark.parametrize(
    "make", [lambda **how: nn.LSTM(8, 8, **how), lambda **how: nn.MultiheadAttention(8, 2, **how)]
)  # fmt: skip
def test_a_layer_tells_the_layout_of_the_inputs_also_where_the_network_swaps_them(make: Callable[..., nn.Module]):
    root, ids, swapped = nn.Identity(), torch.zeros(WORDS, TEXTS), torch.zeros(TEXTS, WORDS)
    time_first, batch_first = torch.zeros(WORDS, TEXTS, 8), torch.zeros(TEXTS, WORDS, 8)
    assert told(root, make(), ids, time_first) is True
    assert told(root, make(), swapped, time_first) is False
    assert told(root, make(batch_first=True), swapped, batch_first) is False
    assert told(root, make(batch_first=True), ids, batch_first) is True
    assert told(root, make(), torch.zeros(3, 9), time_first) is None  # patches of images, say
    assert told(root, make(), torch.zeros(7, 7), torch.zeros(7, 7, 8)) is None
    assert told(root, make(), torch.zeros(WORDS, TEXTS, 8, 8), time_first) is None


def test_a_layer_with_a_forward_of_its_own_tells_nothing():
    class Own(nn.LSTM):
        def forward(self, x):
            return x

    assert told(nn.Identity(), Own(8, 8), torch.zeros(WORDS, TEXTS), torch.zeros(WORDS, TEXTS, 8)) is None


def test_what_was_told_is_kept_and_a_square_batch_waits_for_the_next():
    root, layer, layers = nn.Identity(), nn.LSTM(8, 8), SequenceLayers()
    for shape, expected in (((20, 20), None), ((35, 20), True), ((9, 9), True), ((2, 20), True)):
        layers.begin(root, (torch.zeros(shape),))
        if layers.looking:
            layers.look(layer, (torch.zeros(*shape, 8),))
        assert layers.settle(root, (torch.zeros(shape),), {}) is expected
    assert not layers.looking


def test_nested_inputs_are_no_error():
    nested = torch.nested.nested_tensor([torch.zeros(2, 8), torch.zeros(4, 8)])
    assert told(nn.Identity(), nn.MultiheadAttention(8, 2, batch_first=True), nested, nested) is None


TRANSFORMER = """
    import torch
    from torch import nn

    class Model(nn.Transformer):  # as in PyTorch's example word_language_model: words x texts
        def __init__(self):
            super().__init__(d_model=8, nhead=2, dim_feedforward=8, num_encoder_layers=1, num_decoder_layers=1)
            self.words, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

        def forward(self, ids):
            return self.out(self.encoder(self.words(ids)))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(30):
        ids = torch.randint(50, (6 if step % 10 == 9 else 11, 4))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids).view(-1, 50), ids.flatten()).backward()
        optimizer.step()
"""


def test_a_transformer_with_time_first_inputs_is_measured_in_texts(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "train.py").write_text(textwrap.dedent(TRANSFORMER))
    record = vivace_here("measure", "--json", "--steps", "10", "--", sys.executable, "train.py").record
    assert record["batch_size"] == 4
