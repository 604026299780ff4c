"""channels_last: found by the order of the convolutions' weights, priced by the time in and around convolutions."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import measurement

from vivace.practices.channels_last import find

ROLES = {"convolution": 50.0, "norm": 20.0, "elementwise": 20.0, "layout": 8.0}


@pytest.mark.parametrize("on_gpu", [True, False])
def test_found_when_weights_are_in_nchw_order(on_gpu: bool):
    # On a CPU the operators' times are scaled to forward and backward: 90 of 98 ms.
    scale = 1.0 if on_gpu else 90 / 98
    found = find(measurement(on_gpu=on_gpu, roles=ROLES, structure={"conv_weights_channels_last": 0.0}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(scale * (8 + 0.5 * (50 + 20 + 20)))


@pytest.mark.parametrize(
    "present",
    [
        {"roles": ROLES, "structure": {"conv_weights_channels_last": 1.0}},
        {"roles": ROLES, "structure": {"conv_weights_channels_last": None}},  # no 2-D convolution
        {"roles": {"matmul": 90.0, "convolution": 1.0}, "structure": {"conv_weights_channels_last": 0.0}},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


SCRIPT = """
import json, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
    def forward(self, x, scale=None):
        self.stride = x.stride()
        return self.head(self.conv(x).mean((2, 3)))
model = KIND
optimizer = torch.optim.SGD(model.parameters(), 0.1)
weight = next(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(10, 3, 32, 32)).sum().backward()
    optimizer.step()
print(json.dumps({
    "input": getattr(model, "stride", None), "shape": list(weight.shape),
    "channels_last": weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last),
    "same parameter": next(model.parameters()) is weight and weight is optimizer.param_groups[0]["params"][0],
    "keys": list(model.state_dict()),
}))
"""


def test_strides_change_and_shapes_stay(tmp_path: Path):
    done = run_with(SCRIPT.replace("KIND", "Net()"), ["channels_last"], tmp_path)
    assert done.told == {"channels_last": "applied: weights and inputs of Net"}
    assert done.printed == {
        "input": [3072, 1, 96, 3],  # the strides of the course: (10, 3, 32, 32) from (3072, 1024, 32, 1)
        "shape": [4, 3, 3, 3],
        "channels_last": True,
        "same parameter": True,
        "keys": ["conv.weight", "conv.bias", "head.weight", "head.bias"],
    }


def test_beside_a_3d_convolution_only_what_has_four_dimensions_changes(tmp_path: Path):
    script = """
import json, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.deep = nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3)
    def forward(self, image, video):
        self.strides = image.stride(), video.stride()
        return self.flat(image).mean() + self.deep(video).mean()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 3, 8, 8), torch.ones(2, 3, 4, 8, 8)).backward()
    optimizer.step()
print(json.dumps([*model.strides, model.flat.weight.stride(), model.deep.weight.stride()]))
"""
    done = run_with(script, ["channels_last"], tmp_path)
    assert done.told == {"channels_last": "applied: weights and inputs of Net"}
    assert done.printed == [[192, 1, 24, 3], [768, 256, 64, 8, 1], [27, 1, 9, 3], [81, 27, 9, 3, 1]]


def test_a_model_whose_sizes_are_not_known_yet_is_left_alone(tmp_path: Path):
    lazy = "nn.Sequential(nn.Conv2d(3, 4, 3), nn.LazyConv2d(4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())"
    done = run_with(SCRIPT.replace("KIND", lazy), ["channels_last"], tmp_path)
    assert done.told == {"channels_last": "Sequential has layers that get their sizes with the first batch"}
    assert not done.printed["channels_last"]


def test_a_model_without_convolutions_is_left_alone(tmp_path: Path):
    done = run_with(
        SCRIPT.replace("KIND", "nn.Sequential(nn.Flatten(), nn.Linear(3072, 2))"), ["channels_last"], tmp_path
    )
    assert done.told == {"channels_last": "Sequential has no 2-D convolution"}
