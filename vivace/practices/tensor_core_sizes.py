"""Sizes that tensor cores like: multiples of 8 in 16 bits, and results that fill whole waves of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.hardware.products import (
    TILES,
    alignment_share,
    arithmetic_intensity,
    bytes_per_element,
    layer_checklists,
    round_up,
    tensor_core_multiple,
    tile_efficiency,
    wave_efficiency,
)
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import PRODUCTS, capability, on_gpu, peak, recurrent_ms, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, likely_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement
    from vivace.records.structure import Layer

_SMALLEST_SHARE = 0.05
_TENSOR_CORES = ("tf32", "fp16", "bf16", "fp8")
_SAVED = Shares(0.95, 0.3, 1.0)  # of what is lost. R15 in planted_defects.csv: 3.89 expected, 3.62 measured
_GOOD_ENOUGH = 0.8  # of full waves: sizes that do better are hard to find, and libraries have more tiles than we know


def find(m: Measurement) -> Found | None:
    return _find_products(m) or _find_recurrent(m)


def _find_products(m: Measurement) -> Found | None:
    layers = [layer for layer in m.structure.layers if layer.arithmetic in _TENSOR_CORES and layer.groups == 1]
    if not on_gpu(m) or not m.machine.gpus or not layers:
        return None
    sms = m.machine.gpus[0].sm_count
    # Shares are of the arithmetic; a layer at half its rate takes twice its share of the time.
    lost = {id(layer): layer.share * (1 / _rate_share(layer, sms, _on_hopper(m)) - 1) for layer in layers}
    exposed = role_ms(m, *PRODUCTS) * (1 - 1 / (1 + sum(lost.values())))
    if exposed < _SMALLEST_SHARE * step_ms(m):
        return None
    worst = max(layers, key=lambda layer: lost[id(layer)])
    return Found(
        exposed_ms=exposed,
        likely=likely_saved(m, *(Less(device_ms=share * exposed) for share in _SAVED)),
        evidence={
            "layer": f"{worst.kind} {worst.m} x {worst.n} x {worst.k}, {worst.arithmetic}",
            "share_of_flops": round(worst.share, 3),
            "alignment": alignment_of(worst, _on_hopper(m)),
            "waves_filled": round(waves_filled(worst, sms), 3) if sms else None,
            "flops_per_byte": round(_intensity(worst), 1),
            "gpu_flops_per_byte": _gpu_intensity(m, worst.arithmetic),
        },
        says=_says(worst, sms, exposed),
        by_hand=_by_hand(worst),
    )


def _find_recurrent(m: Measurement) -> Found | None:
    """By the hidden size alone: what goes in is often the data's."""
    arithmetic = {"bfloat16": "bf16", "float16": "fp16"}.get(m.structure.autocast or "")
    if not on_gpu(m) or arithmetic is None or not m.structure.recurrent:
        return None
    worst = min(m.structure.recurrent, key=lambda layer: alignment_share(layer.hidden, layer.hidden))
    exposed = recurrent_ms(m) * (1 - alignment_share(worst.hidden, worst.hidden, hopper=_on_hopper(m)))
    if exposed <= _SMALLEST_SHARE * step_ms(m):
        return None
    needed = layer_checklists()["recurrent"]["divisible"]["fp16"]
    odd = {name: size for name, size in (("hidden", worst.hidden), ("inputs", worst.inputs)) if size % needed}
    return Found(
        exposed_ms=exposed,
        likely=likely_saved(m, *(Less(device_ms=share * exposed) for share in _SAVED)),
        evidence={"layer": worst.name, "hidden": worst.hidden, "inputs": worst.inputs, "minibatch": m.batch_size},
        says=f"{worst.name} has sizes that are no multiple of {needed}: at most {exposed:.1f} ms of a step are lost",
        by_hand="\n".join(f"{name} {size} → {round_up(size, 64)}" for name, size in odd.items()),
    )


def _on_hopper(m: Measurement) -> bool:
    return capability(m)[0] == 9


def _rate_share(layer: Layer, sms: int | None, hopper: bool) -> float:
    """The share of its rate that a product keeps: aligned rows, and multiprocessors that all have work."""
    filled = waves_filled(layer, sms) if sms else 1.0
    return alignment_of(layer, hopper) * (1.0 if filled >= _GOOD_ENOUGH else filled)


def alignment_of(layer: Layer, hopper: bool = False) -> float:
    """1 for rows of a multiple of 16 bytes. The three channels of an image are the data's: no size of the model's."""
    if layer.kind == "convolution":  # measured on Hopper were matrix products only
        depth = 16 if _reads_an_image(layer.k) else layer.k
        return alignment_share(layer.n, depth, bytes_per_element(layer.arithmetic))
    return alignment_share(layer.n, layer.k, bytes_per_element(layer.arithmetic), hopper)


def _reads_an_image(depth: int) -> bool:
    return any(depth == 3 * size * size for size in (1, 2, 3, 4, 5, 7, 8, 9, 11, 14, 16))


def waves_filled(layer: Layer, sms: int) -> float:
    """What waves leave of the rate, with the tile that suits the product best. 1 for less than a wave, which only a
    larger product would mend."""
    if layer.m * layer.n < sms * TILES[0][0] * TILES[0][1]:
        return 1.0
    rates = {(h, w): rate * tile_efficiency(layer.m, layer.n, (h, w)) for h, w, rate in TILES}
    in_waves = max(rate * wave_efficiency(layer.m, layer.n, sms, tile) for tile, rate in rates.items())
    return in_waves / max(rates.values())


def _intensity(layer: Layer) -> float:
    return arithmetic_intensity(layer.m, layer.n, layer.k, bytes_per_element(layer.arithmetic))


def _gpu_intensity(m: Measurement, arithmetic: str) -> float | None:
    """FLOPs that the GPU does while it moves a byte: below that a product is limited by memory."""
    flops, bandwidth = peak(m, arithmetic), m.machine.gpus[0].memory_bandwidth_gbytes_per_s
    return round(1e3 * flops / bandwidth, 1) if flops and bandwidth else None


def _says(layer: Layer, sms: int | None, exposed: float) -> str:
    sizes = f"a product of {layer.m} x {layer.n} x {layer.k} ({layer.arithmetic}, {layer.share:.0%} of the arithmetic)"
    needed, _ = tensor_core_multiple(layer.arithmetic)
    if alignment_of(layer) < 1:
        return f"{sizes} has sizes that are no multiple of {needed}: at most {exposed:.1f} ms of a step are lost"
    return (
        f"{sizes} leaves its last wave over {sms} multiprocessors nearly empty: at most {exposed:.1f} ms of a step "
        "are lost"
    )


def _by_hand(layer: Layer) -> str:
    needed, best = tensor_core_multiple(layer.arithmetic)
    odd = [(name, size) for name, size in (("outputs", layer.n), ("inputs", layer.k)) if size % needed]
    if alignment_of(layer) < 1 and odd:
        why = f"# a multiple of {best}; {needed} is needed"
        return "\n".join(f"{name} {size} → {round_up(size, best)}   {why}" for name, size in odd)
    return "another batch size or width: try multiples of 256 rows and 128 columns"


PRACTICE = Practice(
    name="tensor_core_sizes",
    title="sizes that tensor cores like",
    family="structure",
    risk="algorithmic",
    source=(
        "R15; NVIDIA's checklists for fully connected, convolutional, recurrent and memory-limited layers "
        "(vivace/hardware/layer_sizes.toml). DLO-JZ: arithmetic intensity and wave quantization."
    ),
    why=(
        "Tensor cores read rows of 16 bytes: 4 numbers in TF32, 8 in fp16 and bf16, 16 in fp8. A vocabulary of 50,257 "
        "falls back to slower kernels; 50,304 does not. A result is cut into tiles that the multiprocessors compute in "
        "waves: one tile more than fits costs a whole wave. Best on an A100 are multiples of 32 (TF32), 64 (fp16) and "
        "128 (8 bits), sizes of 64 and more, ideally 256, and batches and widths above 128; recurrent layers want a "
        "minibatch above 128 or a hidden size above 256. Pad the vocabulary, the widths and the batch."
    ),
    by_hand="vocabulary = 64 * math.ceil(vocabulary / 64)   # pad what the model multiplies by; the data stay",
    find=find,
)
