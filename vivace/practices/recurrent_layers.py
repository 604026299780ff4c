"""Whole recurrent layers: nn.LSTM over a sequence instead of an LSTMCell called for every position. By hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import compute_ms, launch_idle_ms, on_gpu, peak, step_ms

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement
    from vivace.records.structure import Cell

_FEWEST_CALLS = 8  # in a step: a decoder of a few positions is not worth a layer
_SMALLEST_SHARE = 0.05
_KERNELS = 24  # that a call of an LSTMCell launches, forward and backward: products, gates, sums of gradients
_GATES = {"LSTMCell": 4, "GRUCell": 3}
# A position of a whole layer on a GPU, forward and backward, where its products are small: two short kernels each.
_POSITION_MS = 0.02
_PRODUCTS_AT_PEAK = 0.3  # share of the peak that the products of a whole layer reach
# On a CPU the products take as long, and what lies between them goes: 1.5 to 5 times as fast (two cores, torch 2.13).
_CPU_LEFT = 0.6


def find(m: Measurement) -> Found | None:
    cells = [cell for cell in m.structure.cells if cell.calls >= _FEWEST_CALLS]
    if not cells:
        return None
    now = _cells_ms(m, cells)
    likely = max(0.0, now - _layers_ms(m, cells, now))
    if likely <= _SMALLEST_SHARE * step_ms(m):
        return None
    saved = max(0.0, now - _floor_ms(m, cells)) if on_gpu(m) else _most_on_a_cpu_ms(m, now)
    calls = sum(cell.calls for cell in cells)
    first = max(cells, key=lambda cell: cell.calls)
    layer = first.name.removesuffix("Cell")
    return Found(
        exposed_ms=saved,
        likely=Saved(min(likely, saved), 0.6 * likely, saved),
        idle_ms=min(launch_idle_ms(m), saved),
        evidence={
            "cells": ", ".join(f"{cell.name}({cell.inputs}, {cell.hidden})" for cell in cells[:4]),
            "calls_per_step": calls,
            "cells_ms": round(now, 3),
            "kernels_per_step": round(m.profile.kernels_per_step or 0) if m.profile and on_gpu(m) else None,
        },
        says=(
            f"{first.name} is called for one position in time after the other, {calls} times per step; "
            f"nn.{layer} runs over the whole sequence at once"
        ),
        where=(first.where.file, first.where.line) if first.where else None,
        by_hand=_lines(first, layer),
    )


def _cells_ms(m: Measurement, cells: list[Cell]) -> float:
    """The part of forward and backward that is theirs: by their launches on a GPU, or by their FLOPs, if that is more.

    The step whose calls were counted stands for the others.
    """
    model = m.flops.model if m.flops is not None else 0
    by_flops = sum(_flops(m, cell) for cell in cells) / model if model else 0.0
    kernels = m.profile.kernels_per_step if on_gpu(m) and m.profile is not None else None
    by_launches = _KERNELS * sum(cell.calls for cell in cells) / kernels if kernels else 0.0
    return compute_ms(m) * min(1.0, max(by_flops, by_launches))


def _flops(m: Measurement, cell: Cell) -> float:
    """Of all its calls in a step: two products of the forward, and twice as much in the backward."""
    batch = (m.batch_size or 1) / max(1.0, m.micro_batches or 1.0)
    return 3 * 2 * batch * cell.calls * _GATES.get(cell.name, 1) * cell.hidden * (cell.inputs + cell.hidden)


def _at_peak_ms(m: Measurement, cells: list[Cell], share: float) -> float:
    """Their products at a share of the peak of the arithmetic that most FLOPs are in."""
    kinds = m.flops.by_type if m.flops is not None else {}
    rate = peak(m, max(kinds, key=kinds.__getitem__)) if kinds else None
    return sum(_flops(m, cell) for cell in cells) / (rate * share * 1e9) if rate else 0.0


def _floor_ms(m: Measurement, cells: list[Cell]) -> float:
    """No layer is faster than its products at the peak."""
    return _at_peak_ms(m, cells, 1.0)


def _most_on_a_cpu_ms(m: Measurement, now: float) -> float:
    """How much of the time lies between small products is not seen there: the bound is all of forward and backward."""
    return max(now, compute_ms(m))


def _layers_ms(m: Measurement, cells: list[Cell], now: float) -> float:
    """What whole layers should take in their place."""
    if not on_gpu(m):
        return _CPU_LEFT * now
    return max(_POSITION_MS * sum(cell.calls for cell in cells), _at_peak_ms(m, cells, _PRODUCTS_AT_PEAK))


def _lines(cell: Cell, layer: str) -> str:
    first = f"self.layer = nn.{layer}({cell.inputs}, {cell.hidden}, batch_first=True)   # in place of nn.{cell.name}\n"
    return first + (
        "outputs, state = self.layer(sequence)   # (batch, time, features); in place of the loop over positions\n"
        "# weights of a checkpoint: layer.weight_ih_l0 = cell.weight_ih, weight_hh_l0, bias_ih_l0, bias_hh_l0 alike\n"
        "# stacked cells: num_layers=N. Where an output is the next input (sampling), the loop must stay."
    )


PRACTICE = Practice(
    name="recurrent_layers",
    title="whole recurrent layers instead of cells",
    family="structure",
    risk="rounding",
    source="PyTorch: nn.LSTM, nn.GRU and nn.RNN run cuDNN's layers; R9: few large kernels instead of many small ones.",
    why=(
        "A cell that is called for every position launches some two dozen small kernels each time, forward and "
        "backward, and the host cannot launch them fast enough. A whole layer multiplies all inputs at once and steps "
        "through time inside one library call. The numbers are the same up to rounding, and so are the weights."
    ),
    by_hand=(
        "self.layer = nn.LSTM(inputs, hidden, batch_first=True)   # in place of nn.LSTMCell(inputs, hidden)\n"
        "outputs, state = self.layer(sequence)                     # in place of the loop over positions"
    ),
    find=find,
)
