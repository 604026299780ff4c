"""Fused attention: the square of scores never goes to memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, likely_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.graphs.attention_rewrite import Rewritten
    from vivace.practices.graphs.backends import Eager
    from vivace.practices.switching.live import Live
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05
# A softmax moves a square five times, forward and backward; scaling, mask and dropout move it 14 times, and autocast's
# casts 4 more. What is elementwise beyond that is not the attention's.
_AROUND_A_SOFTMAX = 4.0
_SAVED = Shares(0.7, 0.3, 1.0)  # of that time, saved by a fused kernel
_KERNELS = ("flash", "mem_efficient", "cudnn")
_UNFUSED = "torch's own attention has no fused kernel for these inputs (their type, mask or head size)"


class Attention(Change):
    """Switches fused kernels on again where the script switched them off, and a transformers model from eager to sdpa.

    Attention that a model writes out itself is found in the graph of its forward and replaced there, if its result is
    the same. Where to look is learned in the first forward, which runs as it is.
    """

    switchable = True

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.usual: list[str] | None = None  # kernels that this torch has on by itself: 2.4 has cuDNN's off
        self.buffers: WeakSet[torch.nn.Module] = WeakSet()  # roots whose buffers hold masks
        self.to_watch: WeakSet[torch.nn.Module] = WeakSet()
        self.calls: list[tuple[torch.nn.Module, Any]] = []  # of those, while it is switched off
        self.attached: list[tuple[torch.nn.Module, torch.nn.Module, Eager]] = []  # with its root

    def flags(self) -> None:
        if self.usual is None:  # right after the import of torch
            self.usual = [name for name in _KERNELS if _is_on(name)]

    def model(self, root: torch.nn.Module) -> None:
        switched = [*_switch_transformers(root), *_switch_kernels(self.usual or [])]
        if switched:
            self.applied(f"attention: {', '.join(switched)}")
        elif any(module._compiled_call_impl is not None for module in root.modules()):
            raise NotApplicable("the script compiles this model, and attention by hand is changed by hand there")
        elif not torch._dynamo.is_dynamo_supported():
            raise NotApplicable("this torch cannot capture the graph of a model in this Python")
        else:
            self._look_into(root)

    def _look_into(self, root: torch.nn.Module) -> None:
        from vivace.practices.graphs.backends import register

        self.buffers.add(root)
        self.to_watch.add(root)
        register(self._rewrite)  # for the practice compile, which comes later

    def forward(self, root: torch.nn.Module) -> AbstractContextManager[Any] | None:
        if self.attached:
            self._detach_those_of_no_use()
        model = getattr(root, "module", root)  # the script may have wrapped it since
        if model not in self.to_watch or any(part._compiled_call_impl is not None for part in model.modules()):
            return None
        self.to_watch.discard(model)
        return self._watched(model)

    @contextmanager
    def _watched(self, root: torch.nn.Module) -> Iterator[None]:
        from vivace.practices.graphs.softmax_watch import SoftmaxWatch

        with SoftmaxWatch() as watch:
            yield
        if not watch.modules:
            self.refused = self.refused or f"{type(root).__name__} computes no softmax: it has no attention by hand"
        _allow_graphs(len(watch.modules))
        for module in watch.modules:
            self._attach(module, root)

    def _attach(self, module: torch.nn.Module, root: torch.nn.Module) -> None:
        from vivace.practices.graphs.backends import Eager

        backend = Eager(self._rewrite)
        module.compile(backend=backend, dynamic=False)
        self.attached.append((module, root, backend))

    def _detach_those_of_no_use(self) -> None:
        """A module may hand its weights to one that drops them: then the whole model is looked at once."""
        from vivace.practices.graphs.attention_pattern import Unlike

        useless = [each for each in self.attached if each[2].is_of_no_use]
        self.attached = [each for each in self.attached if not each[2].is_of_no_use]
        for module, root, backend in useless:
            module._compiled_call_impl = None
            handed_on = Unlike.SCORES_USED in backend.left and module is not root
            if handed_on and not any(other is root for _, other, _ in self.attached):
                self._attach(root, root)

    def switch(self, on: bool, live: Live) -> None:
        from vivace.practices.graphs.backends import register, unregister

        if any(getattr(getattr(root, "config", None), "_attn_implementation", None) for root in live.roots):
            raise NotApplicable("a transformers model is told how to attend when it is made")
        if not on:
            unregister(self._rewrite)
            self.calls = [(module, module._compiled_call_impl) for module, _, _ in self.attached]
            for module, _ in self.calls:
                module._compiled_call_impl = None
        elif self.calls:
            register(self._rewrite)
            for module, call in self.calls:
                module._compiled_call_impl = call
        else:
            self.flags()
            for root in live.roots:
                self.model(root)

    @property
    def undecided(self) -> bool:  # type: ignore[override]
        backends = [backend for _, _, backend in self.attached]
        return bool(self.to_watch) or any(backend.graphs == 0 or backend.is_of_no_use for backend in backends)

    def _rewrite(self, module: Any, inputs: Sequence[Any]) -> Rewritten:
        from vivace.practices.graphs.attention_rewrite import rewrite

        fixed = {id(buffer) for root in self.buffers for buffer in root.buffers()}
        done = rewrite(module, inputs, fixed)
        if done.masks:
            kinds = ", ".join(sorted({mask.value for mask in done.masks}))
            self.applied(f"attention by hand through scaled_dot_product_attention ({kinds})")
        elif done.left:
            self.refused = self.refused or f"attention by hand is left as it is: {done.left[0].value}"
        if done.drops and self.same_draws:
            _only_plain_kernels()
        return done


def _allow_graphs(modules: int) -> None:
    """Before 2.5, torch captures one graph for each block, and gives up after eight of one class."""
    config = torch._dynamo.config
    with warnings.catch_warnings():  # of newer ones, where it is always so
        warnings.simplefilter("ignore")
        one_for_all = bool(getattr(config, "inline_inbuilt_nn_modules", True))
    if not one_for_all:
        config.cache_size_limit = max(config.cache_size_limit, 8 * modules)


def _only_plain_kernels() -> None:
    """They draw dropout as code that is written out does; fused ones have random numbers of their own."""
    for name in _KERNELS:
        switch = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)
        if switch is not None:
            switch(False)


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
        why_not=_UNFUSED if unfused and not off else None,
    )


def _less(m: Measurement, ms: float) -> Less:
    return Less(device_ms=ms) if on_gpu(m) else Less(host_ms=ms)


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
    can_draw_the_same=True,
    find=find,
    change=Attention,
    order=30,
)
