"""Number formats of a training job: what the matrix units compute in, and the bytes that each parameter
needs.

Also reads the many spellings found in published tables ("fp16 mixed", "amp_bf16 / FSDP
mixed_precision=PURE", "bf16, fp32 grad accumulation", "TF32", "AMP & dynamic loss scale"). Pure; called by
memory, time and the table reader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from vivace.errors import UserError

__all__ = ["PRECISIONS", "Precision", "PrecisionRecipe", "parse_precision"]

PrecisionRecipe = Literal["autocast", "mixed", "deepspeed", "fsdp"]


@dataclass(frozen=True)
class Precision:
    """Bytes per parameter by role. ``compute`` is the type that the matrix units work in."""

    name: str
    compute: str
    weight_bytes: float
    gradient_bytes: float
    master_bytes: float
    """fp32 copy kept by the optimizer; 0 when the weights themselves are fp32."""
    activation_bytes: float
    reduce_bytes: float
    """Bytes per parameter on the wire when gradients are summed."""
    accumulation_bytes: float = 0.0
    """A second, fp32 gradient buffer next to the 16-bit one (bf16 with fp32 accumulation)."""
    cast_bytes: float = 0.0
    """16-bit copies of fp32 weights that autocast keeps from forward to backward."""
    state_scale: float = 1.0
    """0.5 when the optimizer's moments are 16-bit too."""


PRECISIONS: dict[str, Precision] = {
    "fp32": Precision("fp32", "fp32", 4, 4, 0, 4, 4),
    "tf32": Precision("tf32", "tf32", 4, 4, 0, 4, 4),
    # torch autocast: parameters, gradients and moments stay fp32; each weight is cast once per step.
    "bf16-amp": Precision("bf16-amp", "bf16", 4, 4, 0, 2, 4, cast_bytes=2),
    "fp16-amp": Precision("fp16-amp", "fp16", 4, 4, 0, 2, 4, cast_bytes=2),
    # Megatron: 16-bit weights, fp32 main gradients, fp32 master and moments: 18 bytes (Korthikanti 2022,
    # figure 1).
    "fp16-mixed": Precision("fp16-mixed", "fp16", 2, 4, 4, 2, 2),
    "bf16-mixed": Precision("bf16-mixed", "bf16", 2, 4, 4, 2, 4),
    # DeepSpeed: 16-bit weights and gradients, fp32 master and moments: 16 bytes (ZeRO paper).
    "fp16-deepspeed": Precision("fp16-deepspeed", "fp16", 2, 2, 4, 2, 2),
    "bf16-deepspeed": Precision("bf16-deepspeed", "bf16", 2, 2, 4, 2, 4, accumulation_bytes=4),
    "bf16-pure": Precision("bf16-pure", "bf16", 2, 2, 0, 2, 2, state_scale=0.5),
    "fp8-mixed": Precision("fp8-mixed", "fp8", 2, 4, 4, 2, 4),
}


def _compute_type(text: str, gpu_has_bf16: bool) -> str:
    for word, dtype in (("fp8", "fp8"), ("float8", "fp8"), ("bf16", "bf16"), ("bfloat16", "bf16")):
        if word in text:
            return dtype
    for word in ("fp16", "float16", "half", "fp-16", "16-bit", "16bit", "amp", "mixed", "o1", "o2"):
        if word in text:
            return "fp16"
    if "tf32" in text or "tensorfloat" in text:
        return "tf32"
    if "fp32" in text or "float32" in text or "single" in text or text == "32":
        return "fp32"
    if not text:
        return "bf16" if gpu_has_bf16 else "fp16"
    raise UserError(f"precision {text!r} is not known", hint="one of " + ", ".join(sorted(PRECISIONS)))


def parse_precision(text: str, recipe: PrecisionRecipe = "mixed", gpu_has_bf16: bool = True) -> Precision:
    """A precision from any spelling; the recipe says who holds the fp32 copies.

    >>> parse_precision("amp_bf16 / FSDP mixed_precision=DEFAULT", "fsdp").reduce_bytes
    4
    """
    words = text.strip().lower().replace("_", "-").replace("-", " ").replace("  ", " ")
    if text.strip().lower() in PRECISIONS:
        return PRECISIONS[text.strip().lower()]
    compute = _compute_type(words.replace(" ", "-") if words else "", gpu_has_bf16)
    if compute in ("fp32", "tf32"):
        return PRECISIONS[compute]
    if recipe == "fsdp":
        return _fsdp(compute, words)
    if recipe == "autocast":
        return replace(PRECISIONS["bf16-amp"], name=f"{compute}-amp", compute=compute)
    if recipe == "deepspeed":
        base = PRECISIONS["bf16-deepspeed" if "bf16" in words or compute == "bf16" else "fp16-deepspeed"]
    else:
        base = PRECISIONS["fp16-mixed" if compute == "fp16" else "bf16-mixed"]
    return replace(base, name=f"{compute} ({recipe})", compute=compute)


def _fsdp(compute: str, words: str) -> Precision:
    """Sharded fp32 parameters, gathered in 16 bit; gradients reduced in 16 bit when the recipe says
    "pure".
    """
    reduce_bytes = 2 if "pure" in words else 4
    return Precision(f"{compute} (fsdp)", compute, 4, 4, 0, 2, reduce_bytes)
