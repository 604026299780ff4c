"""cuDNN autotune: found for convolutions of few input sizes; never with changing sizes or determinism."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement

from vivace.practices.cudnn_benchmark import find

OFF = {
    "roles": {"convolution": 60.0, "layout": 10.0, "norm": 20.0},
    "structure": {"conv_weights_channels_last": 1.0},
    "flags": {"cudnn_benchmark": False, "cudnn_deterministic": False},
}


def test_found_when_off_with_constant_sizes():
    found = find(measurement(**OFF))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.3 * (60 + 10))


@pytest.mark.parametrize(
    "present",
    [
        {"flags": {"cudnn_benchmark": True}},
        {"flags": {"cudnn_benchmark": False, "cudnn_deterministic": True}},
        {"input_shapes": 20},  # it would measure again and again
        {"structure": {}},  # no convolution
        {"on_gpu": False},
        {"roles": {"convolution": 5.0, "matmul": 90.0}},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**{**OFF, **present})) is None


SCRIPT = """
import json, torch
torch.backends.cudnn.benchmark = False
BEFORE
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print(json.dumps(torch.backends.cudnn.benchmark))
"""


def test_without_cudnn_it_says_so(tmp_path: Path):
    done = run_with(SCRIPT.replace("BEFORE", ""), ["cudnn_benchmark"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {"cudnn_benchmark": "there is no cuDNN"}
    assert done.printed is False


@pytest.mark.gpu
@needs_gpu
def test_the_switch_is_on_although_the_script_set_it_off(tmp_path: Path):
    done = run_with(SCRIPT.replace("BEFORE", ""), ["cudnn_benchmark"], tmp_path)
    assert done.told == {"cudnn_benchmark": "applied: cuDNN measures its algorithms"}
    assert done.printed is True


@pytest.mark.gpu
@needs_gpu
def test_a_deterministic_script_stays_deterministic(tmp_path: Path):
    """The flag goes up at ``import torch``, before the script has asked for determinism: it must come down again."""
    done = run_with(SCRIPT.replace("BEFORE", "torch.use_deterministic_algorithms(True)"), ["cudnn_benchmark"], tmp_path)
    assert done.printed is False
    assert done.told == {"cudnn_benchmark": "the script asks for deterministic algorithms"}
