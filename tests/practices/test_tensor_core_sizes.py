"""Sizes that tensor cores like: found by the layers that were seen, priced by their share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from practices.evidence import A100, H200, measurement

from vivace.practices.tensor_core_sizes import PRACTICE, alignment_of, find
from vivace.records.structure import Layer, Recurrent


def layer(m: int, n: int, k: int, share: float = 1.0, kind: str = "matmul", arithmetic: str = "bf16", groups: int = 1):
    return Layer(kind=kind, m=m, n=n, k=k, arithmetic=arithmetic, groups=groups, calls=1, share=share)


def seen(*layers: Layer, **fields):
    return measurement(structure={"layers": layers}, **fields)


def test_an_odd_vocabulary_is_found_and_priced_by_its_share():
    found = find(seen(layer(16384, 50257, 768, share=0.3), layer(16384, 3072, 768, share=0.7), gpu=A100))
    assert found is not None
    # 80 ms of products; at half its rate 0.3 of the arithmetic takes as long as 0.6: 1.3 instead of 1.
    assert found.exposed_ms == pytest.approx(80.0 * 0.3 / 1.3)
    assert found.by_hand == "outputs 50257 → 50304   # a multiple of 64; 8 is needed"
    assert found.evidence["alignment"] == 0.5


def test_a_hopper_loses_more_by_odd_sizes_but_convolutions_are_as_before():
    """Measured: benchmarks/results/product_sizes.csv."""
    odd, even, wide = (alignment_of(layer(8192, n, 2048), hopper=True) for n in (2047, 2046, 2040))
    assert (odd, even, wide) == (0.18, 0.36, 1.0)
    assert alignment_of(layer(8192, 2047, 2048, arithmetic="tf32"), hopper=True) == 0.46
    assert alignment_of(layer(8192, 2047, 2048, kind="convolution"), hopper=True) == 0.5
    on_hopper, on_ampere = (find(seen(layer(8192, 2047, 2047), gpu=gpu)) for gpu in (H200, A100))
    assert on_hopper is not None
    assert on_ampere is not None
    assert on_hopper.exposed_ms > on_ampere.exposed_ms


def test_an_empty_last_wave_is_found():
    """2304 x 1664 on 108 multiprocessors: 117 tiles of 256 x 128; no other tile does better than 70 %."""
    found = find(seen(layer(2304, 1664, 4096), gpu=A100))
    assert found is not None
    assert 0.55 < float(found.evidence["waves_filled"] or 0) < 0.75
    assert found.evidence["gpu_flops_per_byte"] == pytest.approx(312e3 / 2039, abs=0.1)
    assert "last wave over 108 multiprocessors" in found.says


@pytest.mark.parametrize(
    "layers",
    [
        (layer(16384, 50304, 768, 0.3), layer(16384, 3072, 768, 0.7)),  # a GPT with a padded vocabulary
        (layer(256 * 112 * 112, 64, 147, 0.03, "convolution"), layer(256 * 56 * 56, 64, 576, 0.97, "convolution")),
        (layer(2304, 1536, 4096),),
        (layer(16384, 50257, 768, arithmetic="fp32"),),  # no tensor cores at work: precision comes first
        (layer(802816, 1, 9, 1.0, "convolution", groups=64),),  # depth-wise: no size would mend it
        (layer(16384, 1001, 768, share=0.01), layer(16384, 3072, 768, share=0.99)),  # of no weight
        (layer(64, 1024, 1024),),  # less than a wave: only a larger batch would do
        (),
    ],
)
def test_not_found_on_usual_models(layers: tuple[Layer, ...]):
    assert find(seen(*layers)) is None


def test_not_found_on_a_cpu():
    assert find(seen(layer(16384, 50257, 768), on_gpu=False)) is None


def with_lstm(inputs: int, hidden: int, flops: int = 10**12):
    layers = (Recurrent(name="LSTM", inputs=inputs, hidden=hidden),)
    return measurement(structure={"recurrent": layers, "autocast": "bfloat16"}, recurrent={"bf16": flops})


def test_a_recurrent_layer_of_odd_size():
    found = find(with_lstm(512, 650))
    assert found is not None
    assert found.by_hand == "hidden 650 → 704"
    assert find(with_lstm(512, 640)) is None
    assert find(with_lstm(13, 512)) is None  # what the data bring is no size of the model's
    assert find(with_lstm(512, 650, flops=10**10)) is None  # what takes no time loses none


SCRIPT = """
import torch
from torch import nn
lstm, head = nn.LSTM(12, 20, batch_first=True), nn.Linear(20, 7)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = lstm, head
    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(50):
    model(torch.ones(5, 3, 12)).sum().backward()
    optimizer.step()
"""


def test_measuring_gives_the_sizes_of_the_layers(vivace_here: Callable, tmp_path: Path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    structure = vivace_here("measure", "--json", "--steps", "4", "--", sys.executable, str(path)).record["structure"]
    assert structure["recurrent"] == [{"name": "LSTM", "inputs": 12, "hidden": 20}]
    assert (5, 7, 20) in [(one["m"], one["n"], one["k"]) for one in structure["layers"]]


def test_only_the_user_can_change_it():
    assert PRACTICE.change is None
    assert PRACTICE.risk == "algorithmic"
