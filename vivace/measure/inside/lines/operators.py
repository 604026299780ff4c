"""When was the host inside an operator of torch, and of which family? Pure: a profiler's events in, disjoint segments
out. The innermost operator counts: ``aten::linear`` spends its time in ``aten::addmm``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from vivace.measure.inside.lines.charging import Segment

__all__ = ["OTHER", "Event", "family_of", "is_operator", "segments_of"]

OTHER = "other operators"

# By parts of an operator's name without its namespace; the first that fits wins.
_FAMILIES = {
    "communication": ("allreduce", "all_reduce", "allgather", "broadcast_", "reduce_scatter", "alltoall", "barrier"),
    "attention": ("scaled_dot_product", "flash_attention", "efficient_attention"),
    "recurrent": ("lstm", "gru", "rnn"),
    "optimizer": ("_fused_", "_foreach_"),
    "convolution": ("conv",),
    "normalisation": ("norm_", "_norm", "norm"),
    "embedding": ("embedding",),
    "matrix multiplication": ("mm", "matmul", "linear", "dot", "mv", "einsum", "mkldnn_linear"),
    "softmax and loss": ("softmax", "nll_loss", "cross_entropy", "mse_loss", "binary_cross", "kl_div", "l1_loss"),
    "pooling": ("pool",),
    "copies": ("copy", "clone", "contiguous", "cat", "stack", "to_", "transpose_", "pin_memory", "resize", "repeat"),
    "indexing": ("index", "gather", "scatter", "select", "slice", "masked", "where", "sort", "topk", "nonzero"),
    "random": ("dropout", "bernoulli", "uniform", "normal", "rand", "exponential"),
    "reduction": ("sum", "mean", "max", "min", "argmax", "var", "std", "prod", "cumsum", "all", "any"),
    "elementwise": (
        "add", "sub", "mul", "div", "relu", "gelu", "silu", "sigmoid", "tanh", "threshold", "exp", "log", "pow", "sqrt",
        "abs", "neg", "clamp", "fill", "zero", "ones", "eq", "ne", "lt", "gt", "le", "ge", "lerp", "sin", "cos", "erf",
        "leaky", "elu", "hardtanh", "maximum", "minimum", "reciprocal", "sign", "floor", "round",
    ),
}  # fmt: skip
_COMPILED = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph", "graph_", "cpp_fused", "triton_")
_NOT_WORK = ("autograd::", "torch::autograd::", "torch::jit::")


class Event(NamedTuple):
    start_ns: int
    stop_ns: int
    name: str


def is_operator(name: str) -> bool:
    """Not what people name themselves (``record_function``), nor the engine that calls the operators of a backward."""
    if name.startswith(_COMPILED):
        return True
    return "::" in name and " " not in name and not name.startswith(_NOT_WORK)


def family_of(name: str) -> str:
    """
    >>> family_of("aten::addmm"), family_of("aten::native_layer_norm_backward"), family_of("aten::threshold_backward")
    ('matrix multiplication', 'normalisation', 'elementwise')
    """
    if name.startswith(_COMPILED):
        return "compiled code"
    space, _, operator = name.lower().rpartition("::")
    if space == "c10d":
        return "communication"
    return next((family for family, parts in _FAMILIES.items() if any(part in operator for part in parts)), OTHER)


def segments_of(events: Iterable[Event]) -> list[Segment]:
    """Of one thread, whose events nest."""
    segments: list[Segment] = []
    open_: list[Event] = []
    now = 0

    def advance(to: int) -> None:
        nonlocal now
        if open_ and to > now:
            family = family_of(open_[-1].name)
            if segments and segments[-1][1] == now and segments[-1][2] == family:
                segments[-1] = (segments[-1][0], to, family)
            else:
                segments.append((now, to, family))
        now = max(now, to)

    for event in sorted((e for e in events if is_operator(e.name)), key=lambda e: (e.start_ns, -e.stop_ns)):
        while open_ and open_[-1].stop_ns <= event.start_ns:
            advance(open_[-1].stop_ns)
            open_.pop()
        advance(event.start_ns)
        open_.append(event)
    while open_:
        advance(open_[-1].stop_ns)
        open_.pop()
    return segments
