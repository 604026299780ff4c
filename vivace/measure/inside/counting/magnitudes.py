"""How many values of a tensor have which magnitude. Counted on its device, from the bits, without changing anything."""

from __future__ import annotations

import torch

__all__ = ["BINS", "ZEROS", "count_magnitudes", "floating_tensors"]

BINS = 1024  # the 8 bits of a float32's exponent, and the first 2 of its mantissa
ZEROS = BINS  # the place of the count of zeros, after the bins
_PIECE = 2**24  # values at a time: what counting needs of the GPU's memory stays small


def count_magnitudes(tensor: torch.Tensor) -> torch.Tensor:
    """Counts of the bins (``protocol.histograms``; the last four hold infinities and NaN), then of the zeros."""
    with torch.no_grad():
        values = tensor.detach()
        values = torch.view_as_real(values) if values.is_complex() else values
        counts = torch.zeros(BINS + 1, dtype=torch.int64, device=values.device)
        for piece in values.reshape(-1).split(_PIECE):
            bits = piece.float().view(torch.int32)
            bins = (bits >> 21).bitwise_and_(BINS - 1)
            counts[:BINS] += torch.bincount(bins, minlength=BINS)
            counts[ZEROS] += bins.numel() - torch.count_nonzero(bits.bitwise_and(0x7FFFFFFF))
        counts[0] -= counts[ZEROS]
        return counts


def floating_tensors(output: object) -> list[torch.Tensor]:
    """Of what a module returns: a tensor, or some in a tuple, list or dictionary."""
    if isinstance(output, torch.Tensor):
        plain = output.layout is torch.strided and not output.is_meta
        return [output] if plain and (output.is_floating_point() or output.is_complex()) else []
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else ()
    return [tensor for part in parts for tensor in floating_tensors(part)]
