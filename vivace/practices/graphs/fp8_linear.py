"""Linear layers whose three products run in fp8, with torch's own ``_scaled_mm``: where torchao is not installed.

Each matrix is scaled by its largest value before it is cast: e4m3 for activations and weights, e5m2 for gradients,
which need range more than digits. The tensor cores sum up in fp32. Called by the practice ``fp8``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Fp8Linear", "can_multiply"]

_INNER = 16  # the size that a product sums over must be a multiple of this
_SMALLEST = 1e-12  # a matrix of zeros has no largest value to divide by


def can_multiply() -> bool:
    return all(hasattr(torch, name) for name in ("_scaled_mm", "float8_e4m3fn", "float8_e5m2"))


class Fp8Linear(nn.Linear):
    """Takes the place of a layer: ``layer.__class__ = Fp8Linear``. Parameters, their names and hooks stay."""

    def forward(self, input: Tensor) -> Tensor:
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        rows = input.reshape(-1, input.shape[-1])
        out: Tensor = _Product.apply(rows, self.weight, dtype)
        out = out.reshape(*input.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _get_name(self) -> str:
        return "Linear"

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """A copy, or a model that is saved whole, has a plain layer, which needs no vivace to be loaded."""
        return nn.Linear.__new__, (nn.Linear,), self.__dict__.copy()


class _Product(torch.autograd.Function):
    """``x @ weight.t()``, and both products of its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        x8, x_factor = _cast(x, torch.float8_e4m3fn)
        weight8, weight_factor = _cast(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, x_factor, weight8, weight_factor)
        ctx.dtypes = x.dtype, weight.dtype
        return torch._scaled_mm(
            x8, weight8.t(), scale_a=x_factor, scale_b=weight_factor, out_dtype=dtype, use_fast_accum=True
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x8, x_factor, weight8, weight_factor = ctx.saved_tensors
        x_dtype, weight_dtype = ctx.dtypes
        gradient8, factor = _cast(gradient, torch.float8_e5m2)
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = torch._scaled_mm(
                gradient8, _by_columns(weight8), scale_a=factor, scale_b=weight_factor, out_dtype=gradient.dtype
            ).to(x_dtype)
        if ctx.needs_input_grad[1]:
            of_weight = torch._scaled_mm(
                _filled_up(gradient8).t().contiguous(), _by_columns(_filled_up(x8)),
                scale_a=factor, scale_b=x_factor, out_dtype=gradient.dtype,
            ).to(weight_dtype)  # fmt: skip
        return of_x, of_weight, None


def _cast(matrix: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The matrix in fp8, and the factor that a product of it must be multiplied by."""
    largest = torch.finfo(dtype).max
    factor = matrix.abs().amax().float().clamp(min=_SMALLEST) / largest
    return (matrix.float() / factor).clamp(-largest, largest).to(dtype), factor


def _by_columns(matrix: Tensor) -> Tensor:
    """The same values, in the order that ``_scaled_mm`` wants of its second matrix."""
    return matrix.t().contiguous().t()


def _filled_up(matrix: Tensor) -> Tensor:
    """With rows of zeros, until their number can be summed over."""
    missing = -matrix.shape[0] % _INNER
    if not missing:
        return matrix
    zeros = torch.zeros(missing, matrix.shape[1], dtype=torch.uint8, device=matrix.device)
    return torch.cat([matrix.view(torch.uint8), zeros]).view(matrix.dtype)
