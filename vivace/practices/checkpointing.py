"""Activation checkpointing: keep a block's input only, compute the rest again in backward. Memory for time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import memory_limit, optimizer_bytes
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement


class Checkpointing(Change):
    """The forward of the blocks' class is replaced, and acts on the chosen ones: no wrapper, so names stay."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.wanted: int | float = _parse(argument)

    def model(self, root: torch.nn.Module) -> None:
        if _checkpoints_itself(root):
            raise NotApplicable("the script already checkpoints this model")
        if callable(getattr(root, "gradient_checkpointing_enable", None)):
            self._ask_transformers(root)
        else:
            self._checkpoint_blocks(root)

    def _checkpoint_blocks(self, root: torch.nn.Module) -> None:
        blocks = _outermost_blocks(root)
        if not blocks:
            raise NotApplicable(f"{type(root).__name__} repeats no block")
        chosen = blocks[: self._how_many(len(blocks))]
        for kind in {type(block) for block in chosen}:
            _replace_forward(kind)
        for block in chosen:
            block._vivace_checkpointed = True  # type: ignore[assignment]
        names = ", ".join(sorted({type(block).__name__ for block in chosen}))
        self.applied(f"{len(chosen)} of {len(blocks)} blocks ({names})")

    def _ask_transformers(self, root: Any) -> None:
        """These models know how, and leave out the cache of keys and values, which must not be filled twice."""
        if self.argument is not None:
            raise NotApplicable("a transformers model checkpoints all of its blocks or none: ask without a number")
        if not getattr(root, "supports_gradient_checkpointing", False):
            raise NotApplicable(f"{type(root).__name__} does not support checkpointing")
        root.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.applied(f"all blocks of {type(root).__name__}, by transformers' own switch")

    def _how_many(self, blocks: int) -> int:
        if isinstance(self.wanted, float):
            return max(1, round(self.wanted * blocks))
        return min(self.wanted, blocks)


def _parse(argument: str | None) -> int | float:
    """
    >>> _parse("0.5"), _parse("12"), _parse(None)
    (0.5, 12, 1.0)
    """
    if argument is None:
        return 1.0
    try:
        wanted = int(argument) if argument.isdecimal() else float(argument)
    except ValueError:
        wanted = 0
    if wanted <= 0 or (isinstance(wanted, float) and wanted > 1):
        raise ValueError(f"{argument!r} is neither a number of blocks nor a share between 0 and 1")
    return wanted


def _outermost_blocks(root: torch.nn.Module) -> list[torch.nn.Module]:
    """In order of definition. A block inside a block (an expert, a sub-layer) is covered by the outer one."""
    from vivace.measure.inside.facts.structure import repeated_blocks

    names = repeated_blocks(root)
    blocks: list[torch.nn.Module] = []

    def walk(module: torch.nn.Module) -> None:
        for child in module.children():
            if type(child).__name__ in names:
                blocks.append(child)
            else:
                walk(child)

    walk(root)
    return list(dict.fromkeys(blocks))


def _checkpoints_itself(root: torch.nn.Module) -> bool:
    """transformers sets an attribute; torch's and fairscale's wrappers have a name."""
    return any(
        getattr(module, "gradient_checkpointing", False) is True or type(module).__name__ == "CheckpointWrapper"
        for module in root.modules()
    )


def _replace_forward(kind: Any) -> None:
    if "_vivace_checkpointed" in kind.__dict__:
        return
    from torch.utils.checkpoint import checkpoint, noop_context_fn

    original = kind.forward
    kind._vivace_checkpointed = False

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._vivace_checkpointed or not torch.is_grad_enabled():
            return original(self, *args, **kwargs)
        if torch.compiler.is_compiling():
            return checkpoint(lambda *inputs: original(self, *inputs, **kwargs), *args, use_reentrant=False)
        # In one argument each: a block may have parameters of the same names as checkpoint's own, and the states of
        # the random generators are kept only for the devices of positional arguments.
        return checkpoint(
            _call, original, self, args, kwargs, use_reentrant=False, context_fn=_contexts_of(self) or noop_context_fn
        )

    forward.__wrapped__ = original  # type: ignore[attr-defined]  # libraries look at a forward's signature
    kind.forward = forward


def _call(original: Any, block: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return original(block, *args, **kwargs)


def _contexts_of(block: torch.nn.Module) -> Any:
    """Norms with running statistics must not count a batch twice."""
    batch_norms = torch.nn.modules.batchnorm._NormBase  # and instance norms
    norms = [m for m in block.modules() if isinstance(m, batch_norms) and m.training and m.track_running_stats]
    return (lambda: (contextlib.nullcontext(), _statistics_untouched(norms))) if norms else None


@contextlib.contextmanager
def _statistics_untouched(norms: Sequence[torch.nn.Module]) -> Iterator[None]:
    """The second computation updates copies; then the true ones are put back."""
    kept = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        norm._buffers.update({name: value.clone() for name, value in norm._buffers.items() if value is not None})
    try:
        yield
    finally:
        for norm, buffers in zip(norms, kept):
            norm._buffers.update(buffers)


def find(m: Measurement) -> Found | None:
    limit = memory_limit(m)
    blocks = sum(m.structure.repeated_blocks.values())
    recomputes = m.flops is not None and m.flops.hardware > m.flops.model
    if limit is None or not blocks or recomputes or m.memory.device is None:
        return None
    held = m.memory.device.allocated_peak_gib - optimizer_bytes(m) / 2**30
    return Found(
        exposed_ms=0.0,  # it costs time; what a larger batch wins is measured by `vivace find batch`
        evidence={
            "activations_at_most_gib": round(max(0.0, held), 2),
            "allocated_peak_gib": round(m.memory.device.allocated_peak_gib, 2),
            "total_gib": round(m.memory.device.total_gib, 2),
            "repeated_blocks": blocks,
        },
        says=(
            f"{limit}; of that about {max(0.0, held):.1f} GiB are activations, and those inside {blocks} blocks can "
            "be computed again instead of kept: room for a larger batch, at up to one more forward a step"
        ),
        also_try=("checkpointing=0.5",),
    )


PRACTICE = Practice(
    name="checkpointing",
    title="activation checkpointing",
    family="memory",
    risk="exact",
    source="Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost. DLO-JZ, memory: activation recomputation.",
    why=(
        "Backward needs the activations of forward; for a deep network they are most of the memory. A checkpointed "
        "block keeps its input and is computed a second time in backward, with the same random numbers: the same "
        "result, for up to a third more computing. It does not make a step faster. It makes room: for a larger "
        "batch, a longer sequence, or a model that did not fit."
    ),
    by_hand=(
        "from torch.utils.checkpoint import checkpoint\n"
        "for block in self.blocks:\n"
        "    x = checkpoint(block, x, use_reentrant=False)   # instead of x = block(x)"
    ),
    find=find,
    change=Checkpointing,
    argument="number of blocks, or a share such as 0.5",
    order=50,
    excludes=("accumulation",),
)
