"""Fused attention: the square of scores never goes to memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, likely_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05
# A softmax moves a square five times, forward and backward; scaling, mask and dropout move it 14 times, and autocast's
# casts 4 more. What is elementwise beyond that is not the attention's.
_AROUND_A_SOFTMAX = 4.0
_SAVED = Shares(0.7, 0.3, 1.0)  # of that time, saved by a fused kernel
_KERNELS = ("flash", "mem_efficient", "cudnn")


class Attention(Change):
    """Switches fused kernels on again where the script switched them off, and a transformers model from eager to sdpa.

    Attention that a model writes out itself cannot be reached from outside.
    """

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.usual: list[str] | None = None  # kernels that this torch has on by itself: 2.4 has cuDNN's off

    def flags(self) -> None:
        if self.usual is None:  # right after the import of torch
            self.usual = [name for name in _KERNELS if _is_on(name)]

    def model(self, root: torch.nn.Module) -> None:
        switched = [*_switch_transformers(root), *_switch_kernels(self.usual or [])]
        if not switched:
            raise NotApplicable("no fused attention is switched off; attention by hand is changed by hand")
        self.applied(f"attention: {', '.join(switched)}")


def _switch_transformers(root: Any) -> list[str]:
    config = getattr(root, "config", None)
    if getattr(config, "_attn_implementation", None) != "eager" or not hasattr(root, "set_attn_implementation"):
        return []
    if getattr(config, "output_attentions", False):
        raise NotApplicable("the script wants the attention weights, which fused kernels do not give")
    root.set_attn_implementation("sdpa")
    return ["sdpa instead of eager"]


def _is_on(kernels: str) -> bool:
    asked = getattr(torch.backends.cuda, f"{kernels}_sdp_enabled", None)
    return asked is not None and bool(asked())


def _switch_kernels(usual: list[str]) -> list[str]:
    off = [name for name in usual if not _is_on(name)]
    for name in off:
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(True)
    return [f"{name} kernels on" for name in off]


def find(m: Measurement) -> Found | None:
    structure = m.structure
    if not structure.softmax_squares or structure.attention:
        return None
    # On a CPU operators that have no role of their own are "other".
    softmax, elementwise = role_ms(m, "softmax"), role_ms(m, "elementwise" if on_gpu(m) else "other")
    saved = softmax + min(elementwise, _AROUND_A_SOFTMAX * softmax)
    if saved < _SMALLEST_SHARE * step_ms(m) or softmax < 0.01 * step_ms(m):
        return None
    off = _switched_off(m)
    unfused = structure.unfused_by_torch >= structure.softmax_squares
    if unfused and not off and not on_gpu(m):
        return None  # with dropout, or a mask of its own, a CPU has no fused kernel: nothing to change
    return Found(
        exposed_ms=saved,
        likely=likely_saved(m, *(_less(m, share * saved) for share in _SAVED)),
        evidence={
            "softmax_over_squares": structure.softmax_squares,
            "fused_attention_calls": 0,
            "softmax_ms": round(softmax, 3),
            "elementwise_ms": round(elementwise, 3),
            "switched_off": ", ".join(off) or None,
        },
        says=(
            f"{structure.softmax_squares} softmaxes per step work on whole squares of attention scores; with their "
            f"scaling, masks and dropout they take at most {saved:.1f} ms of a step"
        ),
        by_hand=_lines(m, off),
        why_not=None if off or structure.attention_setting == "eager" else _why_not(unfused),
    )


def _less(m: Measurement, ms: float) -> Less:
    return Less(device_ms=ms) if on_gpu(m) else Less(host_ms=ms)


def _why_not(unfused_by_torch: bool) -> str:
    if unfused_by_torch:
        return "torch's own attention has no fused kernel for these inputs (their type, mask or head size)"
    return "attention is written out in the model: only its author can change it"


def _switched_off(m: Measurement) -> list[str]:
    """Without flash and memory-efficient kernels torch itself writes the scores out."""
    off = [name for name in _KERNELS if m.origin.flags.get(f"{name}_sdp") is False]
    return off if "flash" in off and ("mem_efficient" in off or not on_gpu(m)) else []


def _lines(m: Measurement, off: list[str]) -> str | None:
    if off:
        return "\n".join(f"torch.backends.cuda.enable_{name}_sdp(True)   # the script says False" for name in off)
    if m.structure.attention_setting == "eager":
        return 'model = AutoModel….from_pretrained(…, attn_implementation="sdpa")   # not "eager"'
    if m.structure.modules.get("attention"):
        return "output, _ = self.attention(x, x, x, need_weights=False)   # with weights, nn.MultiheadAttention is slow"
    return None


PRACTICE = Practice(
    name="attention",
    title="fused attention",
    family="kernels",
    risk="rounding",
    source="Dao et al. 2022, FlashAttention. PyTorch: scaled_dot_product_attention and its backends.",
    why=(
        "Attention by hand writes a square of scores per head to memory and reads it back for the scaling, the mask, "
        "the softmax and the dropout. A fused kernel keeps it on the chip: less time, and memory that grows with the "
        "length, not with its square. Flash kernels want 16-bit types; use it together with bf16."
    ),
    by_hand=(
        "y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)\n"
        "# instead of softmax(q @ k.transpose(-2, -1) / sqrt(d) + mask) @ v"
    ),
    other_draws=True,
    find=find,
    change=Attention,
    order=30,
)
