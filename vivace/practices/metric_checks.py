"""torchmetrics without its checks: they read values from the GPU at every update, and the GPU runs dry."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import launch_idle_ms, on_gpu, step_ms
from vivace.practices.engine.step_model import Less, likely_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.02
_MS_PER_SYNC = 0.06  # at most; see no_syncs
_STEPS = 3  # metrics are looked for before the first few steps: validation makes some of its own


class MetricChecks(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.steps = 0

    def no_optimizer(self) -> None:
        self._look()

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.steps += 1
        if self.steps <= _STEPS:
            self._look()

    def _look(self) -> None:
        if "torchmetrics" not in sys.modules:
            raise NotApplicable("the script does not use torchmetrics")
        # By type, not isinstance: that asks each object for its class, and dead proxies and lazy modules answer badly.
        metrics = [m for m in gc.get_objects() if issubclass(type(m), sys.modules["torchmetrics"].Metric)]
        for metric in metrics:
            if getattr(metric, "validate_args", None) is True:
                metric.validate_args = False
        if metrics:
            _weigh_nans_with_zero()
            self.applied(f"{len(metrics)} metrics do not read from the GPU")


def _weigh_nans_with_zero() -> None:
    """Means and sums leave NaN out: by a weight of zero, which needs no answer from the GPU."""
    aggregation: Any = sys.modules.get("torchmetrics.aggregation")
    if aggregation is None:
        return
    for kind in (aggregation.MeanMetric, aggregation.SumMetric):
        if "_cast_and_nan_check_input" not in vars(kind):
            kind._cast_and_nan_check_input = _cast(kind._cast_and_nan_check_input)


def _cast(original: Any) -> Any:
    def cast(self: Any, x: Any, weight: Any = None) -> Any:
        if self.nan_strategy not in ("ignore", "warn"):
            return original(self, x, weight)
        x = torch.as_tensor(x, dtype=self.dtype, device=self.device)
        given = torch.ones_like(x) if weight is None else torch.as_tensor(weight, dtype=self.dtype, device=self.device)
        missing = torch.isnan(x) | torch.isnan(given)
        return torch.where(missing, 0.0, x), torch.where(missing, 0.0, given)

    return cast


def find(m: Measurement) -> Found | None:
    syncs = [s for s in m.syncs if s.via and s.via.startswith("torchmetrics/") and s.per_step >= 0.5]
    idle = launch_idle_ms(m)
    if not on_gpu(m) or not syncs or idle < _SMALLEST_SHARE * step_ms(m):
        return None
    waits = sum(s.per_step for s in syncs)
    return Found(
        exposed_ms=idle,
        idle_ms=idle,
        likely=likely_saved(m, Less(gap=1.0), Less(gap=0.4), Less(host_ms=_MS_PER_SYNC * waits, gap=1.0)),
        evidence={
            "syncs_per_step": round(sum(s.per_step for s in syncs), 2),
            "idle_ms": round(idle, 3),
            "line": f"{syncs[0].file.rsplit('/', 1)[-1]}:{syncs[0].line}",
        },
        says=f"torchmetrics makes the host wait for the GPU {sum(s.per_step for s in syncs):.0f} times per step",
        where=(syncs[0].file, syncs[0].line),
    )


PRACTICE = Practice(
    name="metric_checks",
    title="torchmetrics without checks in the loop",
    family="structure",
    risk="exact",
    source="R11; torchmetrics: validate_args, and nan_strategy of aggregators.",
    why=(
        "torchmetrics looks at the values it is given (labels in range, no NaN), which makes the host wait for the GPU "
        "at every update. The results stay the same: NaN is still left out of means and sums, by a weight of zero and "
        "without the warning. Labels out of range are not reported any more."
    ),
    by_hand='MulticlassAccuracy(…, validate_args=False)\nMeanMetric(nan_strategy="disable")',
    find=find,
    change=MetricChecks,
)
