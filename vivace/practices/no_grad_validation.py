"""Validation without gradients: no graph is kept that no backward will use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, step_ms
from vivace.practices.engine.step_model import Shares, share_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.01
# Of the validation's time. On one CPU core a stack of convolution, batch norm and ReLU in eval mode takes half the time
# under no_grad, one of narrow linear layers four fifths, one of wide ones 0.97.
_AT_MOST = 0.5
# On a GPU a graph costs memory, and time only where the host is the limit: R2 in planted_defects.csv 0.98, convnet 1.16
# and convnet_small 1.01 in price_gains.csv.
_SAVED = Shares(0.15, -0.1, 0.6)  # of that
_CPU_SAVED = Shares(0.5, 0.0, 1.0)


def find(m: Measurement) -> Found | None:
    kept = m.validation.with_grad_ms / m.steps if m.steps else 0.0
    lost = _AT_MOST * kept
    # Validation comes on top of the steps: the share of the whole that is lost, as milliseconds of a step.
    whole = step_ms(m) + (m.validation.total_ms / m.steps if m.steps else 0.0)
    exposed = lost * step_ms(m) / whole if whole else 0.0
    places = m.structure.eval_with_grad
    if not places or exposed <= _SMALLEST_SHARE * step_ms(m):
        return None
    worst = max(places, key=lambda spot: spot.forwards or 0)
    return Found(
        exposed_ms=exposed,
        likely=share_saved(exposed, _SAVED if on_gpu(m) else _CPU_SAVED),
        evidence={
            "validation_with_grad_ms_per_step": round(kept, 3),
            "forwards": sum(spot.forwards or 0 for spot in places),
            "line": f"{worst.file.rsplit('/', 1)[-1]}:{worst.line} `{worst.code}`",
        },
        says=(
            f"validation takes {kept:.1f} ms more per step and keeps a graph that no backward uses: "
            f"activations stay in memory, and up to {lost:.1f} ms of that are lost"
        ),
        where=(worst.file, worst.line),
        why_not="a backward may follow a forward in eval mode: only you know that none does",
    )


PRACTICE = Practice(
    name="no_grad_validation",
    title="validation without gradients",
    family="structure",
    risk="exact",
    source="R2: `with torch.no_grad()` around forward and loss in validation and inference.",
    why=(
        "model.eval() changes dropout and batch norm, not the graph: every forward still keeps its activations for a "
        "backward that never comes. Without gradients validation takes less memory, so its batches can be larger, and "
        "less time."
    ),
    by_hand="model.eval()\nwith torch.no_grad():\n    for inputs, targets in validation_loader:\n        …",
    find=find,
)
