"""DDP under gradient accumulation: exchange gradients once per step, not after every backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.batches import Batches
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import on_gpu, phase_ms, step_ms
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.engine.probed import Probed
    from vivace.records.measurement import Measurement
    from vivace.records.structure import Wrapper

_SMALLEST_SHARE = 0.01
_AGREE = 2  # cycles with as many forwards each, before the next one is taken to be like them


class _Wrapped:
    """One DistributedDataParallel: forwards since its last optimizer step, and what earlier steps had."""

    def __init__(self, root: torch.nn.parallel.DistributedDataParallel) -> None:
        self.parameters = {id(p) for p in root.parameters() if p.requires_grad}
        self.forwards = 0
        self.earlier: list[int] = []
        self.quiet = False  # we have switched its exchange off
        self.scripts_own = False  # the script uses no_sync itself
        self.unexchanged = False  # a backward has left gradients that only this rank knows

    def usual(self) -> int | None:
        """Forwards to a step, where the last steps agree."""
        agree = len(self.earlier) == _AGREE and len(set(self.earlier)) == 1
        return self.earlier[0] if agree else None

    def end(self) -> None:
        self.earlier = [*self.earlier, self.forwards][-_AGREE:]
        self.forwards = 0


class DdpNoSync(Change):
    """Which forward is a step's last one is learnt from the steps before, and every batch that ends an epoch is taken
    for one. Where a step ends earlier than expected, the gradients are exchanged before anybody reads them."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.wrapped: weakref.WeakKeyDictionary[Any, _Wrapped] = weakref.WeakKeyDictionary()
        self.last_batch = False

    def iterator(self, loader: Any, iterator: Any) -> Any:
        try:
            batches = len(loader)
        except TypeError:
            return iterator
        number = 0

        def take(its: Any) -> Any:
            nonlocal number
            batch = next(its)
            number += 1
            self.last_batch = number >= batches
            return batch

        return Batches(iterator, take)

    def forward(self, root: torch.nn.Module) -> None:
        if not isinstance(root, torch.nn.parallel.DistributedDataParallel) or not torch.is_grad_enabled():
            return
        state = self._of(root)
        state.forwards += 1
        usual = state.usual()
        state.quiet = usual is not None and state.forwards < usual and not self.last_batch
        root.require_backward_grad_sync = not state.quiet

    def _of(self, root: torch.nn.parallel.DistributedDataParallel) -> _Wrapped:
        state = self.wrapped.get(root)
        if state is None:
            _check(root)
            state = self.wrapped[root] = _Wrapped(root)
        if not root.require_backward_grad_sync and not state.quiet:
            state.scripts_own = True
            self.done = None
        if state.scripts_own:
            raise NotApplicable("the script chooses itself when gradients are exchanged (no_sync)")
        self.applied("gradients are exchanged in the last backward pass of a step")
        return state

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        return loss

    def after_backward(self) -> None:
        for state in self.wrapped.values():
            state.unexchanged = state.quiet

    def before_gradients_are_read(self) -> None:
        """Clipping, unscaling, the optimizer: what only this rank knows is exchanged now."""
        for root, state in self.wrapped.items():
            if state.unexchanged:
                _exchange([p.grad for p in root.parameters() if p.grad is not None], root.process_group)
                state.unexchanged = False

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.before_gradients_are_read()
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for root, state in self.wrapped.items():
            if state.forwards and not mine.isdisjoint(state.parameters):
                state.end()
                state.quiet = False
                root.require_backward_grad_sync = True


def _check(root: torch.nn.parallel.DistributedDataParallel) -> None:
    if root.find_unused_parameters or root.static_graph:
        option = "find_unused_parameters" if root.find_unused_parameters else "static_graph"
        raise NotApplicable(f"DDP has {option}=True: it must see every backward pass")
    if root._comm_hooks or root.mixed_precision is not None:
        raise NotApplicable("DDP exchanges gradients with a hook or a number type of the script's own")


def _exchange(gradients: Sequence[torch.Tensor], group: Any) -> None:
    """The mean over the ranks, as DDP would have made it: one collective for all gradients of a type."""
    world = torch.distributed.get_world_size(group)
    if world == 1:
        return
    with torch.no_grad():
        for dtype in sorted({gradient.dtype for gradient in gradients}, key=str):
            part = [gradient for gradient in gradients if gradient.dtype == dtype]
            flat = torch.cat([gradient.reshape(-1) for gradient in part]).div_(world)
            torch.distributed.all_reduce(flat, group=group)
            begin = 0
            for gradient in part:
                gradient.copy_(flat[begin : begin + gradient.numel()].view_as(gradient))
                begin += gradient.numel()


def find(m: Measurement) -> Found | None:
    return _found(m, _exchanges_ms(m), measured=False)


def find_probed(m: Measurement, probed: Probed) -> Found | None:
    if probed.no_gradient_sync_ms is None:
        return find(m)
    return _found(m, max(0.0, step_ms(m) - probed.no_gradient_sync_ms), measured=True)


def _found(m: Measurement, exchanges_ms: float, measured: bool) -> Found | None:
    """``exchanges_ms``: what all exchanges of a step cost; one of them must stay."""
    wrapper = next((one for one in m.structure.wrappers if one.name == "DistributedDataParallel"), None)
    exchanges = m.gradient_syncs or 0.0
    if wrapper is None or exchanges < 1.5:
        return None
    saved = exchanges_ms * (exchanges - 1) / exchanges
    if saved <= _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=saved,
        likely=Saved(saved, 0.7 * saved, saved) if measured else Saved(0.7 * saved, 0.3 * saved, saved),
        evidence={
            "exchanges_per_step": round(exchanges, 2),
            "backward_passes_per_step": m.micro_batches,
            "exchanges_ms": round(exchanges_ms, 3),
            "measured_by_a_differential_run": measured,
        },
        says=(
            f"DDP exchanges gradients {exchanges:.0f} times per step, after every backward pass; once is enough: "
            f"{saved:.1f} ms per step"
        ),
        where=(wrapper.where.file, wrapper.where.line) if wrapper.where else None,
        why_not=_why_not(wrapper),
    )


def _exchanges_ms(m: Measurement) -> float:
    """Communication that is seen to be waited for, and the copies of gradients into DDP's buckets and back."""
    bandwidth = m.machine.gpus[0].memory_bandwidth_gbytes_per_s if on_gpu(m) and m.machine.gpus else None
    copies = 4 * 4 * (m.trainable_parameters or 0) / (bandwidth * 1e6) if bandwidth else 0.0
    waited = m.profile.communication_exposed_ms_per_step if on_gpu(m) and m.profile is not None else None
    return (waited if waited is not None else phase_ms(m, "communication")) + copies * (m.gradient_syncs or 0.0)


def _why_not(wrapper: Wrapper) -> str | None:
    for option in ("find_unused_parameters", "static_graph"):
        if wrapper.options.get(option):
            return f"DDP has {option}=True: it must see every backward pass"
    return None


PRACTICE = Practice(
    name="ddp_no_sync",
    title="gradients exchanged once per step",
    family="structure",
    risk="rounding",
    source="PyTorch notes on DistributedDataParallel: no_sync() under gradient accumulation.",
    why=(
        "With gradient accumulation only the sum over all backward passes is used, but DDP exchanges gradients after "
        "each of them: it copies them into buckets, averages them over the ranks and copies them back. With no_sync() "
        "around all passes but the last, they are added up locally and exchanged once: the same mean, with other "
        "rounding. Buffers (running means) of other ranks than the first are also brought in line once per step."
    ),
    by_hand=(
        "last = (i + 1) % accumulation == 0\n"
        "with contextlib.nullcontext() if last else model.no_sync():   # around forward and backward\n"
        "    loss = criterion(model(inputs), targets) / accumulation\n"
        "    loss.backward()"
    ),
    find=find,
    find_probed=find_probed,
    change=DdpNoSync,
    order=30,
)
