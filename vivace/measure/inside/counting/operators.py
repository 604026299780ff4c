"""What the operators of one step say about a model: the sizes of its products, its attention, tensors made on the host.

Fed by ``flops.FlopCount`` with every operator of the one step that it counts; nothing here runs in a timed step.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from vivace.measure.inside.places import user_place

__all__ = ["OperatorWatch"]

_FACTORIES = frozenset({
    "rand", "randn", "randint", "randperm", "zeros", "ones", "full", "arange", "eye", "linspace", "normal", "empty",
    "scalar_tensor", "bernoulli", "tril", "triu",
})  # fmt: skip
_MATMULS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1}  # name → position of the first factor
_SOFTMAXES = ("_softmax", "_safe_softmax")  # the second is that of torch's own unfused attention
_SMALLEST_ATTENTION = 32  # a softmax over a square of fewer positions is not worth a fused kernel


def _is_attention(name: str) -> bool:
    return "scaled_dot_product" in name or "flash_attn" in name


class OperatorWatch:
    """``layers``: (kind, m, n, k, arithmetic, groups) → calls in the forward. Sizes are of the equivalent product."""

    def __init__(self) -> None:
        self.layers: Counter[tuple[str, int, int, int, str, int]] = Counter()
        self.hidden_flops = 0
        """Of products that run inside one operator: recurrent layers."""
        self.attention: Counter[str] = Counter()
        self.softmax_squares = 0
        self.unfused_by_torch = 0
        self.host_made: dict[tuple[str, int], dict[str, Any]] = {}
        self._made: dict[int, dict[str, Any]] = {}

    def see(self, name: str, args: Any, result: Any, where: str, seconds: float) -> None:
        if name in _FACTORIES:
            self._remember_host_tensor(result, seconds)
        elif name == "_to_copy":
            self._see_copy(args[0], result)
        elif where == "forward" and name in _SOFTMAXES:
            self._see_softmax(name, result)
        elif where == "forward" and _is_attention(name):  # a kernel without a FLOP formula: the CPU's
            self.attention[name.strip("_")] += 1

    def see_product(self, name: str, args: Any, result: Any, arithmetic: str) -> None:
        """An operator with a FLOP formula, in the forward."""
        if name in _MATMULS:
            first, second = args[_MATMULS[name]], args[_MATMULS[name] + 1]
            self.layers[("matmul", first.shape[-2], second.shape[-1], first.shape[-1], arithmetic, 1)] += 1
        elif name in ("convolution", "_convolution"):
            weight, groups = args[1], args[8]
            pixels = result.shape[0] * result[0, 0].numel()
            depth = weight[0].numel()
            self.layers[("convolution", pixels, weight.shape[0] // groups, depth, arithmetic, groups)] += 1
        elif _is_attention(name):
            self.attention[name.strip("_")] += 1

    def _remember_host_tensor(self, result: Any, seconds: float) -> None:
        if isinstance(result, torch.Tensor) and result.is_cpu and result.numel() > 1:
            place = user_place(2)
            if place is not None:
                self._made[result.untyped_storage().data_ptr()] = {**place, "made_ms": 1e3 * seconds}

    def _see_copy(self, source: Any, result: Any) -> None:
        if not (isinstance(source, torch.Tensor) and source.is_cpu) or result.is_cpu:
            return
        place = self._made.get(source.untyped_storage().data_ptr())
        if place is not None:
            entry = self.host_made.setdefault(
                (place["file"], place["line"]), {**place, "copies": 0, "mib": 0.0, "made_ms": 0.0}
            )
            entry["copies"] += 1
            entry["made_ms"] += place.pop("made_ms", 0.0)  # once, however often it is copied
            entry["mib"] += source.numel() * source.element_size() / 2**20

    def _see_softmax(self, name: str, result: Any) -> None:
        if result.dim() >= 3 and result.shape[-1] == result.shape[-2] >= _SMALLEST_ATTENTION:
            self.softmax_squares += 1
            self.unfused_by_torch += name == _SOFTMAXES[1]

    def as_dict(self) -> dict[str, Any]:
        work = {key: 2 * key[1] * key[2] * key[3] * key[5] * calls for key, calls in self.layers.items()}
        total = sum(work.values()) + self.hidden_flops or 1
        ranked = sorted(work, key=lambda key: -work[key])[:24]
        return {
            "layers": [
                {
                    "kind": kind, "m": m, "n": n, "k": k, "arithmetic": arithmetic, "groups": groups,
                    "calls": self.layers[(kind, m, n, k, arithmetic, groups)],
                    "share": work[(kind, m, n, k, arithmetic, groups)] / total,
                }
                for kind, m, n, k, arithmetic, groups in ranked
            ],
            "attention": dict(self.attention),
            "softmax_squares": self.softmax_squares, "unfused_by_torch": self.unfused_by_torch,
            "host_made": list(self.host_made.values()),
        }  # fmt: skip
