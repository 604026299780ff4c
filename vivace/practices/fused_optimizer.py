"""Fused optimizers: the whole update in a few kernels instead of hundreds."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.group_setting import GroupSetting
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import phase_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, host_phase_ms, likely_saved
from vivace.practices.engine.tensors import tensors_to_optimize
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.switching.live import Live
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.03
# Of the optimizer's time with foreach, that fused saves: 2.84 → 1.02 ms (gpt-2), 1.57 → 0.63 (gan), 2.97 → 1.35 (ddp),
# 0.38 → 0.19 (image_classifier-2), 0.50 → 0.40 (lightning_module-2) in tune_h200_trials.csv, public_scripts_trials.csv.
_SAVED = Shares(0.55, 0.2, 0.75)  # usual, least, most


class FusedOptimizer(Change):
    switchable = True

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.setting = GroupSetting("fused")
        self.known: WeakSet[torch.optim.Optimizer] = WeakSet()
        self.fused: WeakSet[torch.optim.Optimizer] = WeakSet()  # those of them that step so
        self.switched: list[Any] = []  # while the script trains
        self.asked = False  # some optimizer was made with fused=True

    @functools.cached_property
    def sparse(self) -> Any:
        """Weights of layers with sparse gradients."""
        from torch.utils.weak import WeakIdKeyDictionary

        return WeakIdKeyDictionary()

    def optimizer(self, kind: type, arguments: dict[str, Any]) -> None:
        if "fused" not in arguments:
            raise NotApplicable(f"{kind.__name__} has no fused implementation")
        if arguments.get("fused") is not None or arguments.get("foreach") is not None:
            raise NotApplicable(f"the script chooses the implementation of {kind.__name__} itself")
        if arguments.get("differentiable"):
            raise NotApplicable(f"{kind.__name__}(differentiable=True) has no fused implementation")
        tensors = list(tensors_to_optimize(arguments["params"]))
        if not tensors or not all(t.is_floating_point() and t.device.type in ("cuda", "cpu") for t in tensors):
            raise NotApplicable("parameters are not plain floating-point tensors on a GPU or CPU")
        arguments["fused"] = self.asked = True
        self.applied(f"{kind.__name__}(fused=True)")

    def model(self, root: torch.nn.Module) -> None:
        for module in root.modules():
            if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
                self.sparse[module.weight] = True

    def no_optimizer(self) -> None:
        raise NotApplicable("the script has no optimizer: it updates its parameters by hand")

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """A checkpoint of the unchanged script says fused=None and keeps step counters on the host: put both right.

        Only now is it known which gradients are sparse: no fused optimizer takes those.
        """
        if not self.asked or optimizer in self.known or not isinstance(optimizer, _kinds_with_fused()):
            return
        self.known.add(optimizer)
        if self._gets_sparse_gradients(optimizer):
            self._take_back(optimizer)
        optimizer.register_load_state_dict_post_hook(_fuse_again)
        if optimizer.state:  # loaded before the first step
            _fuse_again(optimizer)
        if any(group.get("fused") for group in optimizer.param_groups):
            self.fused.add(optimizer)
            self.applied(f"{type(optimizer).__name__}(fused=True)")

    def switch(self, on: bool, live: Live) -> None:
        """Step counters of a fused optimizer are where its tensors are, others are on the host."""
        if on:
            self.setting.set(self._able(live), True)
        for optimizer in self.switched:
            for parameter, kept in optimizer.state.items():
                if isinstance(kept.get("step"), torch.Tensor):
                    kept["step"] = kept["step"].to(parameter.device if on else "cpu")
        if not on:
            self.setting.put_back()

    def _able(self, live: Live) -> list[Any]:
        for root in live.roots:
            self.model(root)
        able: list[Any] = [o for o in live.optimizers if isinstance(o, _kinds_with_fused())]
        able = [o for o in able if not o.defaults.get("differentiable")]
        able = [o for o in able if not any(g.get("fused") or g.get("foreach") for g in o.param_groups)]
        able = [o for o in able if not self._gets_sparse_gradients(o)]
        if not able or any(hasattr(o, "_step_supports_amp_scaling") for o in able):
            raise NotApplicable("no optimizer can be fused between two steps")
        self.switched = able
        self.applied(f"{type(able[0]).__name__}(fused=True)")
        return able

    def _gets_sparse_gradients(self, optimizer: torch.optim.Optimizer) -> bool:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        return any(p in self.sparse or (p.grad is not None and p.grad.is_sparse) for p in parameters)

    def _take_back(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["fused"] = None if group.get("fused") else group.get("fused")
        for state in optimizer.state.values():  # Adagrad makes it with the optimizer
            if isinstance(state.get("step"), torch.Tensor):
                state["step"] = state["step"].cpu()
        if not self.fused:
            self.done = None
        raise NotApplicable(f"gradients are sparse, which a fused {type(optimizer).__name__} does not take")


def _kinds_with_fused() -> tuple[type, ...]:
    return (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)


def _fuse_again(optimizer: Any) -> None:
    for group in optimizer.param_groups:
        if group.get("fused") is None and group.get("foreach") is None:
            group["fused"] = True
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if isinstance(state.get("step"), torch.Tensor):
                state["step"] = state["step"].to(parameter.device)


def find(m: Measurement) -> Found | None:
    slow = [o for o in m.structure.optimizers if o.has_fused and not o.fused and o.foreach is None]
    spent = phase_ms(m, "optimizer")
    if not slow or spent < _SMALLEST_SHARE * step_ms(m):
        return None
    worst = max(slow, key=lambda o: o.tensors)
    host = host_phase_ms(m, "optimizer")
    return Found(
        exposed_ms=spent,
        likely=likely_saved(m, *(Less(share * host, share * spent) for share in _SAVED)),
        evidence={"optimizer_ms": round(spent, 3), "optimizer": worst.name, "tensors": worst.tensors},
        says=f"{worst.name} takes {spent:.1f} ms per step for {worst.tensors} tensors; a fused one takes a few kernels",
        where=(worst.where.file, worst.where.line) if worst.where else None,
        by_hand=f"torch.optim.{worst.name}(…, fused=True)",
    )


PRACTICE = Practice(
    name="fused_optimizer",
    title="fused optimizer",
    family="kernels",
    risk="rounding",
    source="PyTorch optimizers: fused implementations of Adam, AdamW, SGD, Adagrad. DLO-JZ, large-batch optimizers.",
    why=(
        "The default update launches many small kernels and reads every tensor several times. Fused, it is one pass. "
        "Matters most for small steps and many tensors."
    ),
    by_hand="optimizer = torch.optim.AdamW(model.parameters(), lr=…, fused=True)",
    find=find,
    change=FusedOptimizer,
    excludes=("foreach_optimizer", "optimizer"),
    order=20,
)
