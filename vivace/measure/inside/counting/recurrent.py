"""FLOPs of recurrent layers, whose products run inside one operator that torch has no formula for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["FORMULAS"]


def _of_cudnn(inputs: torch.Tensor, weights: Iterable[torch.Tensor], *_: Any, **__: Any) -> int:
    """Every matrix multiplies every position once; padded positions of packed sequences are not there."""
    positions = inputs.numel() // inputs.shape[-1]
    return 2 * positions * sum(weight.numel() for weight in weights if weight.dim() == 2)


def _of_onednn(inputs: torch.Tensor, *args: Any, **_: Any) -> int:
    """One layer in one direction: its two matrices follow the input, then its biases or something in their place."""
    return _of_cudnn(inputs, args[:2])


def _twice(forward: Callable[..., int]) -> Callable[..., int]:
    """Backward: one product for the inputs' gradient and one for the weights'."""
    return lambda *args, **kwargs: 2 * forward(*args, **kwargs)


_aten = torch.ops.aten
FORMULAS: dict[Any, Callable[..., int]] = {
    _aten._cudnn_rnn: _of_cudnn,
    _aten._cudnn_rnn_backward: _twice(_of_cudnn),
    _aten.mkldnn_rnn_layer: _of_onednn,
    _aten.mkldnn_rnn_layer_backward: _twice(_of_onednn),
}
