"""fp8 layers: their three products are those of the rounded matrices, and nothing else of the layer changes."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, nn

from vivace.practices.fp8 import convert
from vivace.practices.graphs.fp8_linear import Fp8Linear, can_multiply

pytestmark = pytest.mark.skipif(not can_multiply(), reason="this torch has no fp8 products")
FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2


def rounded(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    factor = matrix.abs().max() / torch.finfo(dtype).max
    return (matrix / factor).to(dtype).float() * factor


def fp8(layer: nn.Linear) -> nn.Linear:
    layer.__class__ = Fp8Linear
    return layer


@pytest.mark.parametrize("shape", [(32, 64), (7, 64), (2, 5, 64)])  # rows that are no multiple of 16 are filled up
def test_products_are_those_of_rounded_matrices(shape: tuple[int, ...]):
    torch.manual_seed(0)
    layer = fp8(nn.Linear(64, 48))
    x = torch.randn(shape, requires_grad=True)
    gradient = torch.randn(*shape[:-1], 48)
    out = layer(x)
    out.backward(gradient)
    with torch.no_grad():
        x8, w8 = rounded(x, FORWARD), rounded(layer.weight, FORWARD)
        g8 = rounded(gradient, BACKWARD)
        torch.testing.assert_close(out, x8 @ w8.t() + layer.bias, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x.grad, g8 @ w8, rtol=1e-4, atol=1e-4)
        flat = g8.reshape(-1, 48).t() @ x8.reshape(-1, 64)
        torch.testing.assert_close(layer.weight.grad, flat, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(layer.bias.grad, gradient.reshape(-1, 48).sum(0))


def test_zeros_stay_zeros():
    layer = fp8(nn.Linear(16, 16, bias=False))
    assert torch.equal(layer(torch.zeros(16, 16)), torch.zeros(16, 16))


def test_under_autocast_the_result_has_its_dtype_and_gradients_are_fp32():
    layer = fp8(nn.Linear(32, 32))
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(torch.randn(16, 32))
    out.float().square().mean().backward()
    assert out.dtype == torch.bfloat16
    assert layer.weight.grad.dtype == torch.float32


def test_a_network_learns_nearly_as_in_fp32():
    def losses(in_fp8: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        if in_fp8:
            assert convert(model) in ("torch._scaled_mm", "torchao")
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        x, target, seen = torch.randn(64, 32), torch.randn(64, 32), []
        for _ in range(40):
            loss = (model(x) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    plain, narrow = losses(False), losses(True)
    assert narrow[0] == pytest.approx(plain[0], rel=0.02)
    assert narrow != plain
    assert narrow[-1] < 1.5 * plain[-1]
    assert plain[-1] < 0.1 * plain[0]


def test_copies_and_saved_models_are_plain_layers():
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 10))
    convert(model)
    assert [type(module).__name__ for module in model] == ["Fp8Linear", "Linear"]
    assert "Fp8" not in repr(model)
    file = io.BytesIO()
    torch.save(model, file)
    assert b"vivace" not in file.getvalue()
    file.seek(0)
    for copied in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert [type(module) for module in copied] == [nn.Linear, nn.Linear]
        assert torch.equal(copied[0].weight, model[0].weight)
