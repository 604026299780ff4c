"""foreach optimizers: one kernel updates many tensors. For optimizers that have no fused form, or were told not to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.group_setting import GroupSetting
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, phase_ms, step_ms
from vivace.practices.engine.step_model import Less, Shares, host_phase_ms, likely_saved

if TYPE_CHECKING:
    from vivace.practices.switching.live import Live
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.03
_SAVED = Shares(0.75, 0.3, 0.95)  # of its time that is saved; a handful of kernels instead of hundreds
_FEWEST_TENSORS = 8  # a handful of kernels costs nothing


class ForeachOptimizer(Change):
    """Also where the script says ``foreach=False``: whoever asks for this practice knows better now."""

    switchable = True

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.setting = GroupSetting("foreach")

    def optimizer(self, kind: type, arguments: dict[str, Any]) -> None:
        if "foreach" not in arguments:
            raise NotApplicable(f"{kind.__name__} has no foreach implementation")
        if arguments["foreach"] or arguments.get("fused"):
            raise NotApplicable(f"{kind.__name__} already updates many tensors at once")
        if arguments.get("differentiable"):
            raise NotApplicable(f"{kind.__name__}(differentiable=True) updates one tensor after the other")
        arguments["foreach"] = True
        if arguments.get("fused") is False:
            arguments["fused"] = None
        self.applied(f"{kind.__name__}(foreach=True)")

    def switch(self, on: bool, live: Live) -> None:
        if not on:
            self.setting.put_back()
            return
        able = [o for o in live.optimizers if not any(g.get("foreach") or g.get("fused") for g in o.param_groups)]
        able = [o for o in able if "foreach" in o.defaults]
        if not able:
            raise NotApplicable("no optimizer updates its tensors one after the other and could do otherwise")
        self.setting.set(able, True)
        self.applied(f"{type(able[0]).__name__}(foreach=True)")

    def no_optimizer(self) -> None:
        raise NotApplicable("the script has no optimizer: it updates its parameters by hand")


def find(m: Measurement) -> Found | None:
    """On GPUs torch takes foreach by itself unless told otherwise; on CPUs it saves nothing."""
    slow = [o for o in m.structure.optimizers if not o.fused and _one_by_one(o) and o.tensors >= _FEWEST_TENSORS]
    spent = phase_ms(m, "optimizer")
    if not on_gpu(m) or not slow or spent < _SMALLEST_SHARE * step_ms(m):
        return None
    worst = max(slow, key=lambda o: o.tensors)
    host = host_phase_ms(m, "optimizer")
    return Found(
        exposed_ms=spent,
        likely=likely_saved(m, *(Less(share * host, share * spent) for share in _SAVED)),
        evidence={"optimizer_ms": round(spent, 3), "optimizer": worst.name, "tensors": worst.tensors},
        says=f"{worst.name} takes {spent:.1f} ms per step: it updates {worst.tensors} tensors one after the other",
        where=(worst.where.file, worst.where.line) if worst.where else None,
        by_hand=f"torch.optim.{worst.name}(…)   # without foreach=False" if worst.has_foreach else None,
        why_not=None if worst.has_foreach else f"{worst.name} has no foreach implementation",
    )


def _one_by_one(optimizer: Any) -> bool:
    return optimizer.foreach is False if optimizer.has_foreach else not optimizer.has_fused


PRACTICE = Practice(
    name="foreach_optimizer",
    title="optimizer that updates many tensors at once",
    family="kernels",
    risk="rounding",
    source="PyTorch optimizers: the foreach (multi-tensor) implementations.",
    why=(
        "An update in a Python loop launches several small kernels per tensor; a network has hundreds of tensors. The "
        "foreach form launches one kernel for many of them. torch's optimizers take it by default on a GPU; scripts "
        "switch it off to save memory (it holds temporary copies), and optimizers from elsewhere often lack it. "
        "A fused optimizer is faster still, where there is one."
    ),
    by_hand=(
        "optimizer = torch.optim.RMSprop(model.parameters(), lr=…, foreach=True)\n"
        "# in an optimizer of your own: torch._foreach_mul_(momentums, 0.9); torch._foreach_add_(momentums, gradients)"
    ),
    find=find,
    change=ForeachOptimizer,
    excludes=("fused_optimizer", "optimizer"),
    order=20,
)
