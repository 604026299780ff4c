"""fp8: found for large 16-bit products on Hopper; applied to layers whose sizes are multiples of 16."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from practices.changed import needs_gpu, run_with
from practices.evidence import A100, measurement

from vivace.practices.fp8 import PRACTICE, find
from vivace.records.structure import Layer


def layer(m: int, n: int, k: int, share: float, arithmetic: str = "bf16", kind: str = "matmul") -> Layer:
    return Layer(kind=kind, m=m, n=n, k=k, arithmetic=arithmetic, calls=1, share=share)


LARGE = layer(16384, 8192, 2048, 0.8)


def test_found_when_large_products_run_in_bf16():
    found = find(measurement(roles={"matmul": 80.0}, structure={"layers": (LARGE, layer(16384, 64, 2048, 0.2))}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(0.8 * 80 * (1 - 989.4 / 1978.9))
    assert PRACTICE.risk == "algorithmic"


@pytest.mark.parametrize(
    "present",
    [
        {"flops": {"fp8": 10**12}},
        {"gpu": A100},
        {"structure": {"layers": (layer(16384, 768, 768, 1.0),)}},  # too small to pay for the casts
        {"structure": {"layers": (layer(16384, 50257, 2048, 1.0),)}},  # not a multiple of 16
        {"structure": {"layers": (layer(16384, 8192, 2048, 1.0, arithmetic="tf32"),)}},  # bf16 comes first
        {"structure": {"layers": (layer(16384, 8192, 2048, 1.0, kind="convolution"),)}},
        {"roles": {"matmul": 5.0}},
        {"on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**{"roles": {"matmul": 80.0}, "structure": {"layers": (LARGE,)}, **present})) is None


SCRIPT = """
import json, torch
from torch import nn
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.Linear(64, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
before = [id(p) for p in model.parameters()]
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64, device=device)).square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({
    "kinds": [type(m).__name__ for m in model], "keys": list(model.state_dict()), "loss": loss.item(),
    "same": before == [id(p) for p in model.parameters()],
}))
"""
PLAIN_KEYS = ["0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"]


def test_without_hopper_it_says_so(tmp_path: Path):
    done = run_with(SCRIPT, ["fp8"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {"fp8": "fp8 products need a GPU of compute capability 9.0 or newer (Hopper)"}
    assert done.printed["kinds"] == ["Linear", "GELU", "Linear", "Linear"]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs Hopper or newer"
)
def test_layers_of_the_right_sizes_are_swapped_and_names_stay(tmp_path: Path):
    done = run_with(SCRIPT, ["fp8", "bf16"], tmp_path)
    by, kind = ("torchao", "Float8Linear") if find_spec("torchao") else ("torch._scaled_mm", "Fp8Linear")
    assert done.told["fp8"] == f"applied: 2 linear layers of Sequential, by {by}"
    assert done.printed["kinds"] == [kind, "GELU", kind, "Linear"]
    assert done.printed["keys"] == PLAIN_KEYS
    assert done.printed["same"]
