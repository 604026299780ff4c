"""Small stand-ins for large tensors, equal in two runs exactly when the tensors are.

A *sketch* multiplies a vector by fixed random signs and adds it up in a few buckets. It is linear, and the norm of a
sketch is on average the norm of the vector: the sketches of two gradients show how far the gradients lie apart, and
the sketches of the weights before and after a step show the update, without a copy of the weights. Elements are taken
in logical order, so that a memory format (channels_last) makes no difference.

A *digest* is a number that changes with any element of a batch. Floats count by their first 16 bits: a practice that
hands its batch on in bf16 leaves it the same batch.
"""

from __future__ import annotations

from typing import Any

import torch

from vivace.protocol.rank import is_split

__all__ = ["BUCKETS", "Sketcher", "digest_of", "folded"]

BUCKETS = 256
_PERIOD = 2**20  # elements at a time: 8 MiB in double precision
_SEED = 20_260_101
_NEXT_TENSOR, _NEXT_CHUNK = 7_919, 104_729  # primes: where in the signs the next tensor and the next chunk begin
_DIGEST_ELEMENTS = 2**16  # of larger tensors, evenly spaced ones


class Sketcher:
    """Holds the signs, once a device."""

    def __init__(self) -> None:
        self._signs: dict[torch.device, torch.Tensor] = {}

    def sketch(self, tensor: torch.Tensor, place: int) -> torch.Tensor:
        """Of one tensor, in double precision, on its device. ``place``: its number among the tensors."""
        flat = _flat(tensor)
        signs = self._signs_on(flat.device)
        total = torch.zeros(BUCKETS, dtype=torch.float64, device=flat.device)
        for number, start in enumerate(range(0, flat.numel(), _PERIOD)):
            chunk = flat[start : start + _PERIOD].to(torch.float64)
            offset = (place * _NEXT_TENSOR + number * _NEXT_CHUNK) % _PERIOD
            signed = chunk * signs[offset : offset + chunk.numel()]
            total += torch.nn.functional.pad(signed, (0, -signed.numel() % BUCKETS)).view(-1, BUCKETS).sum(0)
        return total

    def norm(self, tensor: torch.Tensor) -> torch.Tensor:
        """The root of the sum of squares, in double precision."""
        flat = _flat(tensor)
        total = torch.zeros((), dtype=torch.float64, device=flat.device)
        for start in range(0, flat.numel(), _PERIOD):
            total += flat[start : start + _PERIOD].to(torch.float64).square().sum()
        return total.sqrt()

    def _signs_on(self, device: torch.device) -> torch.Tensor:
        if device not in self._signs:
            generator = torch.Generator(device="cpu").manual_seed(_SEED)
            bits = torch.randint(0, 2, (2 * _PERIOD,), generator=generator, dtype=torch.float64, device="cpu")
            self._signs[device] = (2 * bits - 1).to(device)
        return self._signs[device]


def folded(sketches: torch.Tensor, buckets: int) -> torch.Tensor:
    """The same sketches with fewer buckets (a power of two): the last dimension is added up."""
    return sketches.reshape(*sketches.shape[:-1], -1, buckets).sum(-2)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """In logical order; of a sparse tensor its values. Of a sharded tensor this rank's part; the whole where vivace has
    sharded it, and every rank looks at the same moment."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.full_tensor() if is_split() else tensor.to_local()  # type: ignore[attr-defined]
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1)


def digest_of(value: Any, depth: int = 4) -> int:
    """Of all tensors in a batch, or in a call's arguments. Waits for the GPU."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "looked_at"):  # a batch of which each rank has its rows (``vivace.scale``)
            value = value.looked_at()
        return _digest_of_tensor(value.detach())
    if depth == 0:
        return 0
    if hasattr(value, "values") and callable(value.values):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return 0
    return sum(number * digest_of(item, depth - 1) for number, item in enumerate(value, 1))


def _digest_of_tensor(tensor: torch.Tensor) -> int:
    if tensor.is_sparse or tensor.is_nested or not tensor.numel():
        return 0
    flat = tensor.reshape(-1)
    if flat.numel() > _DIGEST_ELEMENTS:
        flat = flat[:: -(-flat.numel() // _DIGEST_ELEMENTS)]
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.is_floating_point():
        flat = flat.to(torch.bfloat16).contiguous().view(torch.int16)
    # Odd factors: two elements that change places change the sum. It wraps around, as integers do.
    factors = 2 * torch.arange(flat.numel(), dtype=torch.int64, device=flat.device) + 2_654_435_761
    return int(((flat.to(torch.int64) + tensor.dim()) * factors).sum())
