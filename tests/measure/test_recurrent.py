"""FLOPs of recurrent layers: as many as torch's own formulas count where the same products run one by one."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vivace.measure.inside.counting.flops import FlopCount
from vivace.measure.inside.counting.recurrent import FORMULAS

aten = torch.ops.aten


@pytest.mark.parametrize(("layers", "both_ways"), [(1, False), (2, True)])
def test_the_operator_of_cudnn_counts_what_single_products_would(layers: int, both_ways: bool):
    """A GRU on a CPU runs as single products, which torch counts."""
    model = torch.nn.GRU(12, 16, layers, bidirectional=both_ways)
    inputs = torch.randn(5, 3, 12)
    with FlopCounterMode(display=False) as torchs:
        model(inputs)
    weights = [weight for layer in model.all_weights for weight in layer]
    assert FORMULAS[aten._cudnn_rnn](inputs, weights, 4) == torchs.get_total_flops()


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"bidirectional": True}, {"batch_first": True}])
def test_the_operator_of_onednn_counts_as_that_of_cudnn(options: dict):
    model, inputs = torch.nn.LSTM(12, 16, 2, **options), torch.randn(5, 3, 12)
    count = FlopCount(lambda: "forward")
    with count:
        model(inputs)
    weights = [weight for layer in model.all_weights for weight in layer]
    assert count.forward == FORMULAS[aten._cudnn_rnn](inputs, weights, 4)


def test_an_lstm_is_counted_forward_and_backward_and_told_apart():
    """Two layers over 5 positions of 3 samples: four gates of 16 from 12 and 16, then from 16 and 16."""
    model, head = torch.nn.LSTM(12, 16, 2), torch.nn.Linear(16, 4)
    count, where = FlopCount(lambda: place[0]), "forward"
    place = [where]
    with count:
        loss = head(model(torch.randn(5, 3, 12))[0]).sum()
        place[0] = "backward with graph"
        loss.backward()
    lstm = 2 * 5 * 3 * 4 * 16 * ((12 + 16) + (16 + 16))
    linear = 2 * 5 * 3 * 16 * 4
    assert count.forward == lstm + linear
    assert count.recurrent == {"fp32": 3 * lstm}
    assert sum(count.by_type.values()) == 3 * (lstm + linear)
    (layer,) = count.operators.as_dict()["layers"]
    assert layer["share"] == pytest.approx(linear / (lstm + linear))
