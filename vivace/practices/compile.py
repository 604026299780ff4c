"""torch.compile: fuses the small operators and cuts the cost of launching them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.cuda_graphs import GraphMemory
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import MEMORY_BOUND, compute_ms, launch_idle_ms, on_gpu, role_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, host_share, likely_saved, share_saved, step_model
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.switching.live import Live
    from vivace.records.measurement import Measurement

_GRAPHS = "reduce-overhead"
_GRAPH_MODES = (_GRAPHS, "max-autotune")
_MODES = ("default", _GRAPHS, "max-autotune", "regional")
_FUSED_AWAY = 0.75  # of memory-bound time: chains of pointwise operators become one pass
_CPU_FUSED_AWAY = 0.5
_CPU_FUSED = Shares(0.2, -0.2, _CPU_FUSED_AWAY)
# What fusing saves: most of chains of pointwise operators (R9 in planted_defects.csv 23.5 → 8.4 ms, pointwise in
# price_gains.csv 23.9 → 11.9), less of norms, softmaxes and sums, which are one kernel already.
_POINTWISE = ("elementwise", "other")
_POINTWISE_FUSED = Shares(0.7, 0.3, 0.85)
_OTHERS_FUSED = Shares(0.35, 0.0, _FUSED_AWAY)
# What compiled code saves of the time in which the host launches forward and backward: nothing by itself (guards and
# wrappers take what fewer kernels save), most of it with CUDA graphs, which take some time to replay. price_gains.csv:
# convnet_small 6.4 → 7.1 and 3.3 ms, gpt_small 22.0 → 18.6 and 4.5, gpt 29.0 → 28.2, mlp 18.1 → 17.5.
_LAUNCHES_SAVED = {"default": Shares(0.0, -0.2, 0.3), _GRAPHS: Shares(0.9, 0.0, 1.0)}
_REPLAY_MS = {"default": Shares(0.0, 0.0, 0.0), _GRAPHS: Shares(0.8, 0.8, 0.0)}
_MANY_SHAPES = 8
# Of a step, that the GPU waits for launches: compiled kernels are shorter still, so it will wait more.
_HOST_BOUND = 0.08


class Compile(Change):
    """In place (``module.compile``): no wrapper, so names in state dicts stay."""

    @property
    def switchable(self) -> bool:  # type: ignore[override]
        """CUDA graphs hold the memory of gradients: those modes need a process of their own."""
        return self.mode not in _GRAPH_MODES

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.mode = argument or "default"
        if self.mode not in _MODES:
            raise ValueError(f"{argument!r} is not one of {', '.join(_MODES)}")
        self.graphs: GraphMemory | None = None
        self.compiled: list[tuple[torch.nn.Module, Any]] = []  # of a running training

    def model(self, root: torch.nn.Module) -> None:
        if next(root.children(), None) is None:
            raise NotApplicable(f"{type(root).__name__} is a single layer")
        if root._compiled_call_impl is not None or isinstance(root, torch._dynamo.OptimizedModule):
            raise NotApplicable("the script already compiles this model")
        blocks = _repeated(root) if self.mode == "regional" else [root]
        if not blocks:
            raise NotApplicable(f"{type(root).__name__} repeats no block: compile it whole")
        if self.same_draws:
            _draw_as_eager_code_does()
        for block in blocks:
            _compile(block, None if self.mode in ("default", "regional") else self.mode)
        self.applied(f"{type(root).__name__}, {self.mode}" + (f": {len(blocks)} blocks" if len(blocks) > 1 else ""))

    def switch(self, on: bool, live: Live) -> None:
        if not self.compiled:
            modules = [module for root in live.roots for module in root.modules()]
            before = {id(module) for module in modules if module._compiled_call_impl is not None}
            for root in live.roots:
                self.model(root)
            calls = [(module, module._compiled_call_impl) for module in modules if id(module) not in before]
            self.compiled = [(module, call) for module, call in calls if call is not None]
        for module, call in self.compiled:
            module._compiled_call_impl = call if on else None

    def flags(self) -> None:
        """Called again before the first forward."""
        if self.mode in _GRAPH_MODES and self.graphs is None:
            self.graphs = GraphMemory()
            self.graphs.own_gradients_of_autograd_grad()

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if self.graphs is not None:
            self.graphs.before_forward(root)
        return args, kwargs

    def outputs(self, value: Any) -> Any:
        return self.graphs.after_forward(value) if self.graphs is not None else value


def _compile(block: torch.nn.Module, mode: str | None) -> None:
    """In place. dynamo skips the frames of torch's own files, so ``compile()`` of a Sequential of built-in layers
    compiles nothing; called from a frame of ours, they are part of it."""
    from vivace.practices.graphs.backends import before_inductor

    backend = before_inductor(mode)
    how: dict[str, Any] = {"mode": mode} if backend is None else {"backend": backend}
    if type(block).forward.__module__.partition(".")[0] != "torch":
        block.compile(**how)
        return
    call = block._call_impl

    def whole(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    block._compiled_call_impl = torch.compile(whole, **how)


def _draw_as_eager_code_does() -> None:
    """Compiled code has random numbers of its own: its dropout masks differ, which hides any other difference."""
    from torch._inductor import config

    if hasattr(config, "fallback_random"):
        config.fallback_random = True


def _repeated(root: torch.nn.Module) -> list[torch.nn.Module]:
    from vivace.measure.inside.facts.structure import repeated_blocks

    names = repeated_blocks(root)
    return [module for module in root.modules() if type(module).__name__ in names]


def find(m: Measurement) -> Found | None:
    if m.origin.flags.get("compiled") or (m.input_shapes or 1) > _MANY_SHAPES:
        return None
    if on_gpu(m):
        fusable, launches = _FUSED_AWAY * role_ms(m, *MEMORY_BOUND), launch_idle_ms(m)
    else:
        fusable, launches = _CPU_FUSED_AWAY * role_ms(m, *MEMORY_BOUND), 0.0
    saved = min(fusable + launches, 0.95 * compute_ms(m))
    if saved <= 0.05 * step_ms(m):
        return None
    plain, graphs = "compile", f"compile={_GRAPHS}"
    # Once kernels are short, launching them is often the limit: only a trial tells.
    first, second = (graphs, plain) if launches > _HOST_BOUND * step_ms(m) else (plain, graphs)
    return Found(
        exposed_ms=saved,
        idle_ms=min(launches, saved),
        likely=_likely(m, "default" if first == plain else _GRAPHS),
        evidence={
            "memory_bound_ms": round(role_ms(m, *MEMORY_BOUND), 3),
            "idle_between_kernels_ms": round(launches, 3),
            "kernels_per_step": round(m.profile.kernels_per_step or 0) if m.profile and on_gpu(m) else None,
            "repeated_blocks": sum(m.structure.repeated_blocks.values()),
        },
        says=(
            f"{role_ms(m, *MEMORY_BOUND):.1f} ms of a step are memory-bound operators that can be fused"
            + (f", {launches:.1f} ms the GPU waits for launches" if launches > 0.02 * step_ms(m) else "")
        ),
        setting=None if first == plain else first,
        also_try=(second, "compile=max-autotune") if on_gpu(m) else (),
    )


def _likely(m: Measurement, mode: str) -> Saved:
    if not on_gpu(m):
        return share_saved(role_ms(m, *MEMORY_BOUND), _CPU_FUSED)
    pointwise = role_ms(m, *_POINTWISE)
    others = role_ms(m, *MEMORY_BOUND) - pointwise
    host = step_model(m).host_ms * host_share(m, "forward", "backward")

    def less(launched: float, replay_ms: float, chains: float, rest: float) -> Less:
        host_ms = max(min(0.0, launched * host), launched * host - replay_ms)
        return Less(host_ms=host_ms, device_ms=chains * pointwise + rest * others)

    return likely_saved(m, *map(less, _LAUNCHES_SAVED[mode], _REPLAY_MS[mode], _POINTWISE_FUSED, _OTHERS_FUSED))


def lines(mode: str) -> str:
    if mode == "regional":
        return "for block in model.blocks:   # the repeated ones\n    block.compile()"
    return f'model.compile(mode="{mode}")   # in place: names in state dicts stay'


PRACTICE = Practice(
    name="compile",
    title="torch.compile",
    family="kernels",
    risk="rounding",
    source=(
        "DLO-JZ: default (large models, low compile time), reduce-overhead (small models, more memory), max-autotune "
        "(fastest, very long compile). R9: fuse pointwise operators."
    ),
    why=(
        "Chains of pointwise operators, norms and activations each read and write the whole activation. Compiled, a "
        "chain is one kernel. reduce-overhead records CUDA graphs: for small models, where the host cannot launch fast "
        "enough. regional compiles one repeated block and reuses it: far less compile time. Compile time is paid once "
        "per run: vivace says after how many steps it is won back."
    ),
    by_hand="model.compile()   # in place: names in state dicts stay; mode='reduce-overhead' for small models",
    other_draws=True,
    can_draw_the_same=True,
    find=find,
    change=Compile,
    argument="default | reduce-overhead | max-autotune | regional",
    lines=lines,
    order=60,
    try_last=True,
    excludes=("accumulation",),
)
